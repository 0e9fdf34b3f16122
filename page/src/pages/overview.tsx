// All jobs at a look: those that fail first.
import { useState } from "preact/hooks";
import { type Pulse, type Tasks, jobPath } from "../api";
import { bytes, clock, duration, perSecond, rows, seconds } from "../format";
import { byHealth, type Finding, watermarkAge, worst } from "../health";
import * as live from "../live";
import { Empty, Fact, Sparkline, State, useLoaded } from "../parts";
import { mainRoute } from "../route";

export default mainRoute({ part: "", title: "Jobs", order: 10, show: () => <Overview /> });

/** The worst finding on one line; the others are a click away, so that one job never fills the page. */
function Findings({ found }: { found: Finding[] }) {
  const [open, set] = useState(false);
  const [first, ...others] = found;
  if (!first) return null;
  return (
    <>
      <span class={`finding ${first.level} ${open ? "" : "one-line"}`} title={first.text}>
        {open ? first.text : first.text.split(". To try: ")[0]}
      </span>
      {open &&
        others.map((one) => (
          <span class={`finding ${one.level}`} key={one.text}>
            {one.text}
          </span>
        ))}
      {(others.length > 0 || first.text.length > 90) && (
        <button type="button" class="link finding" aria-expanded={open} onClick={() => set(!open)}>
          {open ? "show less" : others.length ? `+${others.length} more` : "show all of it"}
        </button>
      )}
    </>
  );
}

function Row({ pulse, found }: { pulse: Pulse; found: Finding[] }) {
  const { job, rates } = pulse;
  const lag = live.lines.value.get(job.name)?.lag_rows ?? [];
  const level = worst(found);
  return (
    <tr class={level}>
      <th scope="row">
        <a href={jobPath(job.name)}>{job.name}</a>
        <span class="soft"> version {job.version}</span>
        <Findings found={found} />
      </th>
      <td data-label="State">
        <State state={job.state} />
        {job.switch && !job.switch.ended_at && <span class="state warn">switch: {job.switch.phase}</span>}
      </td>
      <td class="number" data-label="In">
        {perSecond(rates.rows_in)}
      </td>
      <td class="number" data-label="Out">
        {perSecond(rates.rows_out)}
      </td>
      <td class="number" data-label="Lag">
        {rows(job.unprocessed)} rows
      </td>
      <td class="line" data-label="Last 5 min">
        <Sparkline values={lag} label={`lag of ${job.name} over the last 5 minutes`} />
      </td>
      <td class="number" data-label="Watermark age">
        {watermarkAge(pulse, live.now.value)}
      </td>
      <td class="number" data-label="Restarts">
        {rows(job.restarts)}
      </td>
      <td class="number" data-label="Dead letters">
        {job.waiting > 0 ? <a href={jobPath(job.name, "dead")}>{rows(job.waiting)}</a> : "0"}
      </td>
    </tr>
  );
}

function Summary({ pulses }: { pulses: Pulse[] }) {
  const engine = live.engine.value;
  const sum = (of: (one: Pulse) => number) => pulses.reduce((total, one) => total + of(one), 0);
  const failing = pulses.filter((one) => one.job.state === "failed" || one.job.state === "restarting").length;
  return (
    <dl class="facts">
      <Fact name="Jobs">
        {pulses.length}
        {failing > 0 && <span class="bad-text"> {failing} failing</span>}
      </Fact>
      <Fact name="In">{perSecond(sum((one) => one.rates.rows_in))}</Fact>
      <Fact name="Out">{perSecond(sum((one) => one.rates.rows_out))}</Fact>
      <Fact name="Lag">{rows(sum((one) => one.job.unprocessed))} rows</Fact>
      <Fact name="Dead letters">{rows(sum((one) => one.job.waiting))}</Fact>
      {engine && <Fact name="Engine up for">{duration(live.now.value - seconds(engine.started_at))}</Fact>}
    </dl>
  );
}

/** Rows a second that the inboxes of all jobs take. */
function taken(): number {
  let sum = 0;
  for (const { job, rates } of live.jobs.value.values())
    for (const source of new Set(job.inboxes.map((one) => one.source))) sum += rates.sources[source] ?? 0;
  return sum;
}

function Disk({ free, size }: { free: number; size: number }) {
  const part = size ? free / size : 1;
  return (
    <span class={part < 0.05 ? "bad-text" : part < 0.15 ? "warn-text" : ""}>
      {bytes(free)} free <span class="soft">of {bytes(size)}</span>
    </span>
  );
}

/** The engines that share jobs, and who takes a job if its engine dies. */
function Engines() {
  const found = useLoaded<Tasks>("/tasks", 10);
  const engine = live.engine.value!;
  const { tasks = [], engines = {}, engine: own = "" } = found.value ?? {};
  const names = Object.entries(engines ?? {});
  if (engine.single) return null;
  return (
    <section aria-label="engines">
      <h2>Engines</h2>
      <dl class="facts">
        <Fact name="This one">{engine.of > 1 ? `node ${engine.node} of ${engine.of}` : (own || "alone")}</Fact>
        <Fact name="Load of the host">
          {(engine.load ?? 0).toFixed(1)} on {engine.cores === 1 ? "1 core" : `${rows(engine.cores ?? 1)} cores`}
        </Fact>
        <Fact name="Disk">
          <Disk free={engine.disk_free ?? 0} size={engine.disk_size ?? 0} />
        </Fact>
        <Fact name="Inboxes">
          {`${engine.inbox.ip}:${engine.inbox.port}`} <span class="soft">{perSecond(taken())}</span>
        </Fact>
        <Fact name="Data">{engine.data}</Fact>
        <Fact name="Drivers in reserve">{rows(engine.warm ?? 0)}</Fact>
        {names
          .filter(([name]) => name !== own)
          .map(([name, url]) => (
            <Fact name={name} key={name}>
              <a href={url} data-out>
                {url}
              </a>
            </Fact>
          ))}
      </dl>
      {engine.shares && tasks.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="tasks">
          <table class="small">
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
          </table>
        </div>
      )}
    </section>
  );
}

function Overview() {
  const pulses = [...live.jobs.value.values()];
  if (live.engine.value === null) return <Empty title="Asking the engine …" />;
  if (pulses.length === 0)
    return (
      <Empty title="No job is deployed on this engine.">
        <p>
          Deploy a flow: <code>millstream deploy flow.py --engine {live.engine.value.url}</code>
        </p>
      </Empty>
    );
  return (
    <>
      <h1>Jobs</h1>
      <Summary pulses={pulses} />
      <table class="jobs">
        <colgroup>
          <col class="name" />
        </colgroup>
        <thead>
          <tr>
            <th scope="col">Job</th>
            <th scope="col">State</th>
            <th scope="col" class="number">In</th>
            <th scope="col" class="number">Out</th>
            <th scope="col" class="number">Lag</th>
            <th scope="col">Last 5 min</th>
            <th scope="col" class="number">Watermark age</th>
            <th scope="col" class="number">Restarts</th>
            <th scope="col" class="number">Dead letters</th>
          </tr>
        </thead>
        <tbody>
          {byHealth(pulses).map((one) => (
            <Row key={one.pulse.job.name} {...one} />
          ))}
        </tbody>
      </table>
      <Engines />
    </>
  );
}
