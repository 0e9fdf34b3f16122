// Watchers: whom they work with, how far they are, and what waits.
import { type WatcherSeen } from "../api";
import { bytes, duration, rows } from "../format";
import { Empty, Fact, Failure, Table, useLoaded } from "../parts";
import { mainRoute } from "../route";

export default mainRoute({ part: "watchers", title: "Watchers", order: 30, engine: true, show: () => <Watchers /> });

/** What `millstream watch status --json` prints. */
interface WatcherStatus {
  device: string;
  uptime_seconds: number;
  memory_bytes: number;
  events: number;
  rejected: number;
  patterns: { name: string; live: number; found: number }[];
  peers: { name: string; address: string; away: boolean; heard_s: number | null; stash: number; reason: string | null }[];
  outputs: { name: string; waiting: number; delivered: number; trouble: string | null }[];
  unwritten: string | null;
}

function Watchers() {
  const found = useLoaded<WatcherSeen[]>("/watchers", 5);
  if (found.error && !found.value) return <Failure error={found.error} />;
  if (!found.value) return null;
  return (
    <>
      <h1>Watchers</h1>
      {found.value.length === 0 ? (
        <Empty title="This engine was told of no watchers.">
          <p>
            Start it with their addresses: <code>millstream engine --watcher URL</code>
          </p>
        </Empty>
      ) : (
        found.value.map((one) => <One key={one.url} seen={one} />)
      )}
    </>
  );
}

function One({ seen }: { seen: WatcherSeen }) {
  const it = seen.status as unknown as WatcherStatus | null | undefined;
  if (!it)
    return (
      <section aria-label={`watcher ${seen.url}`}>
        <h2>
          {seen.url} <span class="state bad">away</span>
        </h2>
        <p class="finding bad">{seen.problem}</p>
      </section>
    );
  return (
    <section aria-label={`watcher ${it.device}`}>
      <h2>
        {it.device} <span class="soft">{seen.url}</span>
      </h2>
      {it.unwritten && <p class="finding bad">It takes no events: {it.unwritten}</p>}
      <dl class="facts">
        <Fact name="Events">{rows(it.events)}</Fact>
        <Fact name="Rejected">{rows(it.rejected)}</Fact>
        <Fact name="Up for">{duration(it.uptime_seconds)}</Fact>
        <Fact name="Memory">{bytes(it.memory_bytes)}</Fact>
        {it.patterns.map((one) => (
          <Fact name={`Pattern ${one.name}`} key={one.name}>
            {rows(one.live)} live, {rows(one.found)} found
          </Fact>
        ))}
        {it.outputs.map((one) => (
          <Fact name={`Output ${one.name}`} key={one.name}>
            {rows(one.waiting)} waiting, {rows(one.delivered)} delivered {one.trouble && <span class="bad-text">{one.trouble}</span>}
          </Fact>
        ))}
      </dl>
      {it.peers.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label={`peers of ${it.device}`}>
          <Table class="small">
            <thead>
              <tr>
                <th scope="col">Peer</th>
                <th scope="col">Address</th>
                <th scope="col">State</th>
                <th scope="col" class="number">Last contact</th>
                <th scope="col" class="number">Changes it does not know</th>
                <th scope="col">Trouble</th>
              </tr>
            </thead>
            <tbody>
              {it.peers.map((one) => (
                <tr key={one.name}>
                  <td>{one.name}</td>
                  <td>{one.address}</td>
                  <td>
                    <span class={`state ${one.away ? "bad" : "ok"}`}>{one.away ? "away" : "there"}</span>
                  </td>
                  <td class="number">{one.heard_s === null ? "never" : `${duration(one.heard_s)} ago`}</td>
                  <td class="number">{rows(one.stash)}</td>
                  <td>{one.reason ?? ""}</td>
                </tr>
              ))}
            </tbody>
          </Table>
        </div>
      )}
    </section>
  );
}
