// Programs: those that the engine keeps for flows, and the runtimes that run programs now.
import { useState } from "preact/hooks";
import { type Binary, type Group, type Log, jobPath } from "../api";
import { bytes, clock, duration, rows } from "../format";
import * as live from "../live";
import { Empty, Failure, Table, useLoaded } from "../parts";
import { mainRoute } from "../route";

export default mainRoute({ part: "actions", title: "Programs", order: 20, engine: true, show: () => <Programs /> });

const LEVEL: Record<string, string> = { running: "ok", waiting: "warn", silent: "bad" };

interface Seat {
  job: string;
  group: string;
  it: NonNullable<Group["programs"]>[number];
}

/** Programs of stages: a seat for each of Spark's Python workers that has had rows for one. */
function Stages() {
  const seats: Seat[] = [...live.jobs.value.values()].flatMap(({ job }) =>
    job.groups.flatMap((group) => (group.programs ?? []).map((it) => ({ job: job.name, group: group.name, it }))),
  );
  const stages = new Map<string, Seat[]>();
  for (const one of seats) {
    const id = `${one.job}\n${one.group}\n${one.it.stage}`;
    stages.set(id, [...(stages.get(id) ?? []), one]);
  }
  return (
    <>
      <h2>
        Programs of stages <span class="soft">one for each of Spark's workers</span>
      </h2>
      {stages.size === 0 ? (
        <p class="soft">
          No program is at work in a flow. A stage <code>action</code> starts them: <code>stream.action("name", ["./program"])</code>
        </p>
      ) : (
        [...stages].map(([id, all]) => <OneStage key={id} seats={all} />)
      )}
    </>
  );
}

function OneStage({ seats }: { seats: Seat[] }) {
  const { job, group, it } = seats[0]!;
  const [open, set] = useState(false);
  const spent = live.jobs.value.get(job)?.rates.spent[group]?.programs ?? 0;
  return (
    <section aria-label={`program of stage ${it.stage}`}>
      <h3>
        <a href={jobPath(job)}>{job}</a>: stage {it.stage}{" "}
        <span class="soft">
          {seats.length === 1 ? "1 worker" : `${rows(seats.length)} workers`}, {Math.round(spent * 100)} % of the time of group {group}
        </span>
      </h3>
      <div class="scroll" tabIndex={0} role="region" aria-label={`workers of stage ${it.stage}`}>
        <Table class="small">
          <thead>
            <tr>
              <th scope="col">Host</th>
              <th scope="col" class="number">Worker</th>
              <th scope="col" class="number">Program</th>
              <th scope="col">State</th>
              <th scope="col" class="number">Starts</th>
              <th scope="col" class="number">Rows</th>
              <th scope="col" class="number">Failed</th>
              <th scope="col" class="number">Last at work</th>
            </tr>
          </thead>
          <tbody>
            {seats.map(({ it: one }) => (
              <tr key={`${one.host} ${one.worker}`}>
                <td>{one.host}</td>
                <td class="number">{one.worker}</td>
                <td class="number">{one.pid ?? "–"}</td>
                <td>
                  <span class={`state ${one.pid === null ? "warn" : "ok"}`}>{one.pid === null ? "not running" : "running"}</span>
                </td>
                <td class="number">{rows(one.starts ?? 0)}</td>
                <td class="number">{rows(one.rows ?? 0)}</td>
                <td class="number">{(one.failed ?? 0) > 0 ? <span class="bad-text">{rows(one.failed!)}</span> : "0"}</td>
                <td class="number">{duration(Math.max(0, live.now.value - (one.at ?? 0)))} ago</td>
              </tr>
            ))}
          </tbody>
        </Table>
      </div>
      <div class="actions">
        <button type="button" aria-expanded={open} onClick={() => set(!open)}>
          {open ? "Hide what it prints" : "What it prints"}
        </button>
      </div>
      {open && <Printed job={job} stage={it.stage} />}
    </section>
  );
}

/** The last lines that the programs of a stage have printed: they are in the job's log, marked by stage and worker. */
function Printed({ job, stage }: { job: string; stage: string }) {
  const found = useLoaded<Log>(`${jobPath(job, "logs")}?lines=200&contains=${encodeURIComponent(`.${stage} `)}`, 3);
  if (found.error && !found.value) return <Failure error={found.error} />;
  if (!found.value) return null;
  const lines = found.value.lines.filter((line) => line.includes(`.${stage} `) && / worker \d+: /.test(line));
  if (lines.length === 0) return <Empty title="It has printed nothing to its standard error." />;
  return (
    <div class="log short" tabIndex={0} role="log" aria-label={`printed by ${stage}`}>
      {lines.map((line, at) => (
        <div key={at}>{line}</div>
      ))}
    </div>
  );
}

function Programs() {
  const found = useLoaded<Binary[]>("/actions", 10);
  const runtimes = [...live.jobs.value.values()].flatMap(({ job }) => job.runtimes.map((one) => ({ job: job.name, ...one })));
  return (
    <>
      <h1>Programs</h1>
      <Stages />
      <h2>
        Runtimes <span class="soft">what they print is in the log of their job</span>
      </h2>
      {runtimes.length === 0 ? (
        <p class="soft">No job of this engine has runtimes. A scheme has them: nodes that run programs outside of Spark.</p>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="runtimes">
          <Table class="wide">
            <thead>
              <tr>
                <th scope="col">Node</th>
                <th scope="col">Job</th>
                <th scope="col">Role</th>
                <th scope="col">State</th>
                <th scope="col">Address</th>
                <th scope="col" class="number">Restarts</th>
                <th scope="col" class="number">Oldest message</th>
                <th scope="col" class="number">Queues set aside</th>
                <th scope="col" class="number">Process</th>
              </tr>
            </thead>
            <tbody>
              {runtimes.map((one) => (
                <tr key={`${one.job} ${one.node}`}>
                  <th scope="row">{one.node}</th>
                  <td>
                    <a href={jobPath(one.job, "logs")}>{one.job}</a>
                  </td>
                  <td>{one.role}</td>
                  <td>
                    <span class={`state ${LEVEL[one.state] ?? "calm"}`}>{one.state}</span>
                  </td>
                  <td>{one.address ?? "–"}</td>
                  <td class="number">{rows(one.restarts ?? 0)}</td>
                  <td class="number">{one.oldest ? rows(one.oldest) : "–"}</td>
                  <td class="number">{rows(one.set_aside ?? 0)}</td>
                  <td class="number">{one.pid ?? "–"}</td>
                </tr>
              ))}
            </tbody>
          </Table>
        </div>
      )}
      <h2>
        Kept programs <span class="soft">flows name them, and get the newest version</span>
      </h2>
      {found.error && !found.value ? (
        <Failure error={found.error} />
      ) : found.value?.length === 0 ? (
        <Empty title="This engine keeps no programs.">
          <p>
            Add one: <code>millstream actions add NAME FILE --engine {live.engine.value?.url}</code>
          </p>
        </Empty>
      ) : (
        found.value && (
          <div class="scroll" tabIndex={0} role="region" aria-label="kept programs">
            <Table class="wide">
              <thead>
                <tr>
                  <th scope="col">Program</th>
                  <th scope="col" class="number">Version</th>
                  <th scope="col" class="number">Size</th>
                  <th scope="col">Added</th>
                  <th scope="col">SHA-256</th>
                  <th scope="col">Jobs that run it</th>
                </tr>
              </thead>
              <tbody>
                {found.value.map((one) => (
                  <tr key={`${one.name} ${one.version}`}>
                    <th scope="row">{one.name}</th>
                    <td class="number">{rows(one.version)}</td>
                    <td class="number">{bytes(one.bytes)}</td>
                    <td>{clock(one.added_at)}</td>
                    <td>
                      <code>{one.sha256.slice(0, 12)}</code>
                    </td>
                    <td>
                      {(one.jobs ?? []).length === 0
                        ? "–"
                        : one.jobs!.map((job) => (
                            <a class="reader" key={job} href={jobPath(job)}>
                              {job}
                            </a>
                          ))}
                    </td>
                  </tr>
                ))}
              </tbody>
            </Table>
          </div>
        )
      )}
    </>
  );
}
