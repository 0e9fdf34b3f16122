// The engines of a cluster: how busy each is, and who takes a job if its engine dies.
import type { EngineLoad, Tasks } from "./api";
import { bytes, clock, duration, perSecond, rows } from "./format";
import * as live from "./live";
import { Fact, State, Table, useLoaded } from "./parts";

/** Numbers that are older than this are shown with their age: an engine publishes them every few seconds. */
const STALE_S = 30;

const cores = (count: number) => (count === 1 ? "1 core" : `${rows(count)} cores`);

function Unknown() {
  return <span class="soft">unknown</span>;
}

function Disk({ free, size }: { free: number; size: number }) {
  const part = size ? free / size : 1;
  return (
    <span class={part < 0.05 ? "bad-text" : part < 0.15 ? "warn-text" : ""}>
      {bytes(free)} free <span class="soft">of {bytes(size)}</span>
    </span>
  );
}

function Row({ name, one, here }: { name: string; one: EngineLoad; here: boolean }) {
  const { load, disk_free, disk_size, rows_in, age_s } = one;
  return (
    <tr>
      <th scope="row">
        {one.url && !here ? (
          <a href={one.url} data-out>
            {name}
          </a>
        ) : (
          name
        )}
        <span class="soft">{here ? " this one" : ` ${one.url}`}</span>
        {age_s !== null && age_s > STALE_S && <span class="finding warn">numbers of {duration(age_s)} ago</span>}
      </th>
      <td>{one.state === "unknown" ? <Unknown /> : <State state={one.state} />}</td>
      <td class="number">
        {one.jobs === null ? <Unknown /> : rows(one.jobs)}
      </td>
      <td class="number">
        {load === null ? <Unknown /> : load.toFixed(1)}
        {one.cores !== null && <span class="soft"> on {cores(one.cores)}</span>}
      </td>
      <td class="number">
        {disk_free === null ? <Unknown /> : <Disk free={disk_free} size={disk_size ?? 0} />}
      </td>
      <td class="number">
        {rows_in === null ? <Unknown /> : perSecond(rows_in)}
      </td>
    </tr>
  );
}

function Cluster({ loads, own }: { loads: Record<string, EngineLoad>; own: string }) {
  const { load, cores, disk_free, disk_size, rows_in, url, jobs } = live.engine.value!;
  const known = loads[own];
  // This one's numbers are newer here than what it publishes.
  const ours = { url, load, cores, disk_free, disk_size, rows_in, measured_at: null, age_s: null };
  const state = known && known.state !== "unknown" ? known.state : "up";
  const all: Record<string, EngineLoad> = { ...loads, [own]: { ...ours, state, jobs: known?.jobs ?? jobs } };
  return (
    <Table class="wide">
      <thead>
        <tr>
          <th scope="col">Engine</th>
          <th scope="col">State</th>
          <th scope="col" class="number">Jobs</th>
          <th scope="col" class="number">Load of the host</th>
          <th scope="col" class="number">Disk</th>
          <th scope="col" class="number">Into inboxes</th>
        </tr>
      </thead>
      <tbody>
        {Object.keys(all)
          .sort()
          .map((name) => (
            <Row key={name} name={name} one={all[name]!} here={name === own} />
          ))}
      </tbody>
    </Table>
  );
}

function TaskTable({ tasks }: { tasks: Tasks["tasks"] }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="tasks">
      <h3>Which engine runs which job</h3>
      <Table class="small">
        <thead>
          <tr>
            <th scope="col">Job</th>
            <th scope="col">State</th>
            <th scope="col">Engine</th>
            <th scope="col">Since</th>
            <th scope="col">Next engine</th>
            <th scope="col">Reason</th>
          </tr>
        </thead>
        <tbody>
          {tasks.map((one) => (
            <tr key={one.job}>
              <td>{one.job}</td>
              <td>
                <State state={one.state} />
              </td>
              <td>{one.engine ?? "none"}</td>
              <td>{one.since ? clock(one.since) : "–"}</td>
              <td>{one.next ?? "–"}</td>
              <td>{one.reason ?? ""}</td>
            </tr>
          ))}
        </tbody>
      </Table>
    </div>
  );
}

export function Engines() {
  const found = useLoaded<Tasks>("/tasks", 10);
  const engine = live.engine.value!;
  const { tasks = [], loads = {}, engine: id = "" } = found.value ?? {};
  const own = id || `node ${engine.node}`;
  const alone = Object.keys(loads).every((name) => name === own);
  if (engine.single) return null;
  return (
    <section aria-label="engines">
      <h2>Engines</h2>
      <dl class="facts">
        <Fact name="This one">{engine.of > 1 ? `node ${engine.node} of ${engine.of}` : id || "alone"}</Fact>
        {alone && (
          <>
            <Fact name="Load of the host">
              {(engine.load ?? 0).toFixed(1)} on {cores(engine.cores ?? 1)}
            </Fact>
            <Fact name="Disk">
              <Disk free={engine.disk_free ?? 0} size={engine.disk_size ?? 0} />
            </Fact>
          </>
        )}
        <Fact name="Inboxes">
          {`${engine.inbox.ip}:${engine.inbox.port}`} <span class="soft">{perSecond(engine.rows_in ?? 0)}</span>
        </Fact>
        <Fact name="Data">{engine.data}</Fact>
        <Fact name="Drivers in reserve">{rows(engine.warm ?? 0)}</Fact>
      </dl>
      {!alone && <Cluster loads={loads} own={own} />}
      {engine.shares && tasks.length > 0 && <TaskTable tasks={tasks} />}
    </section>
  );
}
