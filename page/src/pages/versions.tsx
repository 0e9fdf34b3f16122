// Versions of a job, and a switch between two of them as it happens.
import { useState } from "preact/hooks";
import { type Job, type Pulse, type Version, jobPath, post } from "../api";
import { clock, duration, seconds } from "../format";
import * as live from "../live";
import { Empty, Fact, Failure, useLoaded } from "../parts";

export function Versions({ pulse }: { pulse: Pulse }) {
  const { job } = pulse;
  const found = useLoaded<Version[]>(`${jobPath(job.name, "versions")}#${job.version}${job.switch?.phase}${job.switch?.state}`);
  if (found.error && !found.value) return <Failure error={found.error} />;
  return (
    <>
      {job.switch && <Switch job={job} />}
      {!job.switch && (
        <Empty title="This job has not been switched.">
          <p>
            Replace the running version: <code>millstream switch {job.name} flow.py --plan</code> shows what would
            happen.
          </p>
        </Empty>
      )}
      {found.value && (
        <table class="wide">
          <thead>
            <tr>
              <th scope="col">Version</th>
              <th scope="col">Flow</th>
              <th scope="col">Added</th>
              <th scope="col">Ran from</th>
              <th scope="col">Switch</th>
            </tr>
          </thead>
          <tbody>
            {[...found.value].reverse().map((one) => (
              <tr key={one.version}>
                <th scope="row">
                  {one.version} {one.running && <span class="state ok">running</span>}
                </th>
                <td>{one.flow}</td>
                <td>{clock(one.added_at)}</td>
                <td>{one.current_at ? clock(one.current_at) : "–"}</td>
                <td>{one.switch ? one.switch.state : "–"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}

const BEFORE_CUT = new Set(["asked", "preparing", "asking", "shadowing", ""]);

function Switch({ job }: { job: Job }) {
  const it = job.switch!;
  const [error, fail] = useState<unknown>(null);
  const going = !it.ended_at;
  const act = async (why: string, work: () => Promise<unknown>) => {
    if (!confirm(why)) return;
    fail(null);
    try {
      await work();
    } catch (problem) {
      fail(problem);
    }
  };
  const abort = () =>
    act(`Abort the switch? Version ${it.previous} runs on, version ${it.version} is removed.`, () =>
      post(jobPath(job.name, "switch"), undefined, "DELETE"),
    );
  const back = () =>
    act(`Switch back to version ${it.previous}? Results after the next cut are its results again.`, () =>
      post(jobPath(job.name, "switch"), { back: true }),
    );
  const end = it.ended_at ? seconds(it.ended_at) : live.now.value;
  return (
    <section class="switch">
      <h2>
        Switch from version {it.previous} to {it.version} <span class="soft">{it.state}</span>
      </h2>
      <dl class="facts">
        <Fact name="Phase">{it.phase || "–"}</Fact>
        <Fact name="Asked">{clock(it.asked_at)}</Fact>
        <Fact name={going ? "For" : "Took"}>{duration(Math.max(0, end - seconds(it.asked_at)))}</Fact>
        <Fact name="Cut, in event time">{it.cut ? clock(it.cut) : "not yet"}</Fact>
        {it.left_s !== null && it.left_s !== undefined && <Fact name="Still to read">{duration(it.left_s)} of event time</Fact>}
        {it.share !== null && it.share !== undefined && <Fact name="Share of keys">{Math.round(it.share * 100)} %</Fact>}
      </dl>
      {it.why && <p class="finding warn">{it.why}</p>}
      {it.waits && <p class="finding warn">It waits: {it.waits}</p>}
      {it.probation && <p>{it.probation}</p>}
      <Steps job={job} end={end} />
      {error !== null && <Failure error={error} />}
      <div class="actions">
        {going && BEFORE_CUT.has(it.phase) && (
          <button type="button" onClick={abort}>
            Abort: version {it.previous} runs on
          </button>
        )}
        {!going && it.state === "done" && (
          <button type="button" onClick={back}>
            Switch back to version {it.previous}
          </button>
        )}
      </div>
    </section>
  );
}

function Steps({ job, end }: { job: Job; end: number }) {
  const steps = job.switch!.steps;
  return (
    <ol class="steps">
      {steps.map((one, at) => {
        const next = steps[at + 1];
        const lasted = (next ? seconds(next.at) : end) - seconds(one.at);
        return (
          <li key={one.at + one.what} class={next || job.switch!.ended_at ? "past" : "now"}>
            <b>{one.what}</b>
            <span class="soft">{duration(Math.max(0, lasted))}</span>
            <span>{one.detail}</span>
          </li>
        );
      })}
    </ol>
  );
}
