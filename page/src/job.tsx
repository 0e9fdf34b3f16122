// One job: how it does, and the tabs of its pages.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import routes from "routes";
import { type Pulse, jobPath } from "./api";
import { duration, perSecond, rows, seconds } from "./format";
import { type Finding, findings, watermarkAge } from "./health";
import * as live from "./live";
import { Empty, Fact, State } from "./parts";
import { shown } from "./route";

const tabs = () => routes.filter((one) => one.kind === "job").filter((one) => shown(one, live.engine.value!.single ?? false));

export function JobPage({ name, part, rest }: { name: string; part: string; rest: string[] }) {
  const pulse = live.jobs.value.get(name);
  const nav = useRef<HTMLElement>(null);
  const there = pulse !== undefined;
  useLayoutEffect(() => {
    // Not all tabs are in sight on a phone: the one that is shown must be.
    const tab = nav.current?.querySelector<HTMLElement>("[aria-current]");
    if (tab) nav.current!.scrollLeft = tab.offsetLeft - nav.current!.offsetLeft - (nav.current!.clientWidth - tab.offsetWidth) / 2;
  }, [part, there]);
  if (live.engine.value === null) return <Empty title="Asking the engine …" />;
  if (!pulse)
    return (
      <Empty title={`No job "${name}" is deployed on this engine.`}>
        <p>
          <a href="/">All jobs</a>
        </p>
      </Empty>
    );
  const all = tabs();
  const here = all.find((one) => one.part === part) ?? all[0]!;
  return (
    <>
      <Head pulse={pulse} />
      <nav class="tabs" aria-label="parts of the job" ref={nav}>
        {all.map((one, at) => (
          <a
            key={one.part}
            href={at === 0 ? jobPath(name) : jobPath(name, one.part)}
            aria-current={one === here ? "page" : undefined}
          >
            {one.title}
            {(one.badge?.(pulse) ?? 0) > 0 && <span class="badge">{rows(one.badge!(pulse))}</span>}
          </a>
        ))}
      </nav>
      {here.show({ pulse, rest })}
    </>
  );
}

const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

/** The two worst; the others are a click away, so that the graph stays in sight. */
function Findings({ found }: { found: Finding[] }) {
  const [open, set] = useState(false);
  const rest = found.length - 2;
  return (
    <>
      {found.slice(0, open ? undefined : 2).map((one) => (
        <p class={`finding ${one.level}`} key={one.text}>
          {one.text}
        </p>
      ))}
      {rest > 0 && (
        <button type="button" class="link more" aria-expanded={open} onClick={() => set(!open)}>
          {open ? "show less" : `+${rest} more`}
        </button>
      )}
    </>
  );
}

function Head({ pulse }: { pulse: Pulse }) {
  const { job, rates } = pulse;
  return (
    <>
      <h1>
        {job.name} <State state={job.state} />
      </h1>
      <Findings found={findings(pulse)} />
      <dl class="facts">
        <Fact name="In">{perSecond(rates.rows_in)}</Fact>
        <Fact name="Out">{perSecond(rates.rows_out)}</Fact>
        <Fact name="Lag">{rows(job.unprocessed)} rows</Fact>
        <Fact name="Watermark age">{watermarkAge(pulse, live.now.value)}</Fact>
        <Fact name="Restarts">{rows(job.restarts)}</Fact>
        <Fact name="Version">{job.version}</Fact>
        <Fact name={`${capital(job.state)} for`}>{duration(Math.max(0, live.now.value - seconds(job.since)))}</Fact>
      </dl>
    </>
  );
}
