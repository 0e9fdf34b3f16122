// All jobs at a look: those that fail first.
import { useState } from "preact/hooks";
import { type Pulse, jobPath } from "../api";
import { Engines } from "../engines";
import { duration, perSecond, rows, seconds } from "../format";
import { byHealth, type Finding, watermarkAge, worst } from "../health";
import * as live from "../live";
import { Empty, Fact, Sparkline, State } from "../parts";
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

function Overview() {
  const pulses = [...live.jobs.value.values()];
  if (live.engine.value === null) return <Empty title="Asking the engine …" />;
  if (pulses.length === 0)
    return (
      <>
        <Empty title={live.engine.value.shares ? "No job runs on this engine." : "No job is deployed on this engine."}>
          <p>
            Deploy a flow: <code>millstream deploy flow.py --engine {live.engine.value.url}</code>
          </p>
        </Empty>
        <Engines />
      </>
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
