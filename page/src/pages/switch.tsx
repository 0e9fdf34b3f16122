// A switch: its plan before, how it goes, and what there is to decide.
import { useState } from "preact/hooks";
import { type Drawing, type Pulse, type Switch, type SwitchDetail, type SwitchPlanned, jobPath, post } from "../api";
import { Confirmed } from "../confirm";
import { clock, duration, seconds } from "../format";
import * as live from "../live";
import { Fact, useLoaded } from "../parts";
import { jobRoute } from "../route";
import { Ask } from "../switch/ask";
import { Axis } from "../switch/axis";
import { PlanView } from "../switch/plan";
import { Shadow } from "../switch/shadow";

export default jobRoute({
  part: "switch",
  title: "Switch",
  order: 50,
  engine: true,
  badge: (pulse) => (pulse.job.switch && !pulse.job.switch.ended_at ? 1 : 0),
  show: ({ pulse }) => <SwitchPage key={pulse.job.name} pulse={pulse} />,
});

function SwitchPage({ pulse }: { pulse: Pulse }) {
  const { job } = pulse;
  const it = job.switch;
  const going = it && !it.ended_at;
  const detail = useLoaded<SwitchDetail>(`${jobPath(job.name, "switch")}#${it?.version}${it?.state}`);
  const running = useLoaded<Drawing>(`${jobPath(job.name, "graph")}#${job.version}`);
  const [own, show] = useState<SwitchPlanned | null>(null);
  const planned = own ?? (detail.value?.planned as SwitchPlanned | null | undefined);
  return (
    <>
      {it && <Progress pulse={pulse} it={it} />}
      {!going && job.state === "running" && <Ask job={job.name} previous={Number(job.version) > 1} planned={show} />}
      {!going && job.state !== "running" && <p class="soft">A job can be switched while it runs.</p>}
      {planned && <PlanView planned={planned} running={going ? undefined : running.value} />}
    </>
  );
}

function Progress({ pulse, it }: { pulse: Pulse; it: Switch }) {
  const going = !it.ended_at;
  const end = it.ended_at ? seconds(it.ended_at) : live.now.value;
  const shared = it.share !== null && it.share !== undefined;
  return (
    <section class="switch" aria-label="switch">
      <h2>
        {it.shadow ? "Shadow of" : "Switch from"} version {it.previous} {it.shadow ? "by" : "to"} {it.version}{" "}
        <span class={`state ${going ? "warn" : it.state === "done" || it.state === "compared" ? "ok" : "bad"}`}>{it.state}</span>
      </h2>
      <dl class="facts">
        {going && <Fact name="Phase">{it.phase || "–"}</Fact>}
        <Fact name="Asked">{clock(it.asked_at)}</Fact>
        <Fact name={going ? "For" : "Took"}>{duration(Math.max(0, end - seconds(it.asked_at)))}</Fact>
        {!it.shadow && <Fact name="Cut, in event time">{it.cut ? clock(it.cut) : going ? "not yet" : "none"}</Fact>}
        {it.left_s !== null && it.left_s !== undefined && <Fact name="Still to read">{duration(it.left_s)} of event time</Fact>}
        {shared && <Fact name="Share of keys">{percent(it.share!)}</Fact>}
      </dl>
      {it.why && <p class="finding warn">{it.why}</p>}
      {it.waits && <p class="finding warn">It waits: {it.waits}</p>}
      {it.probation && <p>On probation: {it.probation}</p>}
      {going && <Axis pulse={pulse} it={it} />}
      {it.shadow && <Shadow found={it.shadow} />}
      <Actions job={pulse.job.name} it={it} going={going} />
      <Steps it={it} end={end} />
    </section>
  );
}

const percent = (share: number) => `${Math.round(share * 100)} %`;

function Actions({ job, it, going }: { job: string; it: Switch; going: boolean }) {
  const path = jobPath(job, "switch");
  const shares = going && it.share !== null && it.share !== undefined;
  const abortable = going && (!it.cut || it.share !== it.wanted);
  return (
    <div class="actions">
      {shares && it.cut && <Share job={job} it={it} />}
      {shares && it.cut && !abortable && (
        <Confirmed label={`Give all keys back to version ${it.previous}`} title="Give all keys back?" work={() => post(path, { back: true })}>
          <p>From the next cut on, all results are those of version {it.previous} again, and version {it.version} ends.</p>
        </Confirmed>
      )}
      {going && it.waits && !it.until_quiet && (
        <Confirmed label="End when the sources are idle" title="End without events?" work={() => post(path, { until_quiet: true })}>
          <p>Sources that are idle pass their time on, so that the overlap ends without events. Rows that arrive late are dead letters.</p>
        </Confirmed>
      )}
      {abortable && (
        <Confirmed
          label={it.shadow ? "End the shadow" : `Abort: version ${it.previous} runs on`}
          title={it.shadow ? "End the shadow?" : "Abort the switch?"}
          work={() => post(path, undefined, "DELETE")}
        >
          <p>
            Version {it.previous} runs on as if nothing had happened. Version {it.version} and what it has computed are removed.
          </p>
        </Confirmed>
      )}
      {!going && it.state === "done" && (
        <Confirmed label={`Switch back to version ${it.previous}`} title="Switch back?" work={() => post(path, { back: true })}>
          <p>
            A new version with the package of version {it.previous} replaces the running one at the next cut. Results before that
            cut stay as they are.
          </p>
        </Confirmed>
      )}
    </div>
  );
}

function Share({ job, it }: { job: string; it: Switch }) {
  const [wanted, want] = useState(Math.round((it.wanted ?? it.share ?? 0) * 100));
  return (
    <div class="share">
      <label>
        Version {it.version} gets <b class="number">{wanted} %</b> of the keys{" "}
        <input type="range" min="1" max="100" value={wanted} onInput={(event) => want(event.currentTarget.valueAsNumber)} />
      </label>
      <Confirmed
        label={`Give it ${wanted} %`}
        title="Change the share?"
        work={() => post(jobPath(job, "switch"), { share: wanted / 100 })}
      >
        <p>
          {wanted === 100
            ? `From the next cut on, version ${it.version} has all keys, and version ${it.previous} ends.`
            : `From the next cut on, version ${it.version} has ${wanted} % of the keys, and version ${it.previous} the others.`}
        </p>
      </Confirmed>
    </div>
  );
}

function Steps({ it, end }: { it: Switch; end: number }) {
  const steps = it.steps ?? [];
  return (
    <ol class="steps" aria-label="steps">
      {steps.map((one, at) => {
        const next = steps[at + 1];
        const lasted = (next ? seconds(next.at) : end) - seconds(one.at);
        return (
          <li key={`${at}`} class={next || it.ended_at ? "past" : "now"}>
            <b>{one.what}</b>
            <span class="soft">{duration(Math.max(0, lasted))}</span>
            <span>{one.detail}</span>
          </li>
        );
      })}
    </ol>
  );
}
