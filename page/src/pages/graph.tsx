// The graph of a job alive, its numbers over time, and what has happened.
import { useState } from "preact/hooks";
import { type Drawing, type GraphNode, type Happening, type Pulse, type Series, jobPath } from "../api";
import { duration, perSecond, rows } from "../format";
import { busy, Graph } from "../graph";
import { Empty, Failure, useLoaded } from "../parts";
import { type Line, Marks, Plot } from "../plot";
import { jobRoute } from "../route";
import { Send } from "../send";
import { useSeries } from "../series";

export default jobRoute({
  part: "graph",
  title: "Graph",
  order: 10,
  show: ({ pulse }) => <GraphTab key={pulse.job.name} pulse={pulse} />,
});

function GraphTab({ pulse }: { pulse: Pulse }) {
  const name = pulse.job.name;
  const drawing = useLoaded<Drawing>(`${jobPath(name, "graph")}#${pulse.job.version}${pulse.job.state}`);
  const happened = useLoaded<Happening[]>(`${jobPath(name, "history")}#${pulse.job.since}${pulse.job.switch?.phase}`);
  const series = useSeries(pulse);
  const [selected, select] = useState<string | null>(null);
  const node = drawing.value?.nodes.find((one) => one.id === selected);
  const marks = happened.value ?? [];
  return (
    <>
      {drawing.value ? (
        <Graph
          drawing={drawing.value}
          pulse={pulse}
          selected={selected}
          select={(id) => select(id === selected ? null : id)}
        />
      ) : drawing.error ? (
        <Empty title="There is no graph yet.">
          <Failure error={drawing.error} />
        </Empty>
      ) : null}
      {node && <Chosen node={node} job={name} />}
      {series && <Plots series={series} only={node?.kind === "group" ? node.name : (node?.group ?? null)} marks={marks} />}
      <Causes pulse={pulse} />
      <Inboxes pulse={pulse} />
      <section>
        <h2>History</h2>
        {marks.length ? <Marks marks={marks.slice(-50)} /> : <p class="soft">Nothing has happened yet.</p>}
      </section>
    </>
  );
}

function Chosen({ node, job }: { node: GraphNode; job: string }) {
  const columns = Object.entries(node.columns ?? {});
  return (
    <section class="chosen" aria-label={`${node.kind} ${node.name}`}>
      <h2>
        {node.kind} {node.name} <span class="soft">{node.detail}</span>
      </h2>
      {node.kind === "journal" && (
        <p>
          <a href={jobPath(job, "journals", node.name)}>Look into the journal</a>
        </p>
      )}
      <div class="columns">
        {node.text ? (
          <pre>{node.text}</pre>
        ) : (
          node.kind === "stage" && <p class="soft">It calls a function: its code is in the flow's file.</p>
        )}
        {columns.length > 0 && (
          <table class="small">
            <thead>
              <tr>
                <th scope="col">Column</th>
                <th scope="col">Type</th>
              </tr>
            </thead>
            <tbody>
              {columns.map(([column, type]) => (
                <tr key={column}>
                  <td>{column}</td>
                  <td class="soft">{type}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </div>
    </section>
  );
}

function Plots({ series, only, marks }: { series: Series; only: string | null; marks: Happening[] }) {
  const names = Object.keys(series.groups).filter((one) => only === null || one === only);
  const of = (number: string, change = (value: number, _at: number) => value): Line[] =>
    names.map((label) => ({
      label,
      values: (series.groups[label]![number] ?? []).map((one, at) => (one === null ? null : change(one, series.at[at]!))),
    }));
  if (series.at.length < 2 || names.length === 0)
    return <p class="soft">Plots begin once the job has run for some seconds.</p>;
  const behind = (value: number, at: number) => Math.max(0, at - value / 1000);
  const timed = of("watermark_ms", behind).filter((line) => line.values.some((one) => one !== null));
  const kept = of("state_rows").filter((line) => line.values.some((one) => one !== null && one > 0));
  const shared = { at: series.at, marks };
  return (
    <section class="plots" aria-label="numbers over time">
      <Plot {...shared} title="Rows in" lines={of("rows_in")} unit={perSecond} />
      <Plot {...shared} title="Rows out" lines={of("rows_out")} unit={perSecond} />
      <Plot {...shared} title="Lag" whole lines={of("lag_rows")} unit={(one) => `${rows(one)} rows`} />
      <Plot {...shared} title="Batch time" lines={of("batch_seconds")} unit={duration} />
      {timed.length > 0 && <Plot {...shared} title="Watermark behind the clock" lines={timed} unit={duration} />}
      {kept.length > 0 && <Plot {...shared} title="State" whole lines={kept} unit={(one) => `${rows(one)} rows`} />}
    </section>
  );
}

const CAUSES = ["reading", "planning", "waiting", "running", "state", "publishing", "commit"];

/** Where the time of each group goes: parts of the last ten seconds. */
function Causes({ pulse }: { pulse: Pulse }) {
  const groups = Object.entries(pulse.rates.spent);
  if (groups.length === 0) return null;
  const percent = (part: number) => `${Math.round(part * 100)} %`;
  return (
    <section>
      <h2>
        Where the time goes <span class="soft">parts of the last 10 s</span>
      </h2>
      <div class="scroll">
        <table class="small">
          <thead>
            <tr>
              <th scope="col">Group</th>
              <th scope="col" class="number">Busy</th>
              <th scope="col">By cause</th>
              {CAUSES.map((one) => (
                <th scope="col" class="number" key={one}>
                  {one}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {groups.map(([name, shares]) => (
              <tr key={name}>
                <td>{name}</td>
                <td class="number">{percent(busy(pulse, name))}</td>
                <td>
                  <svg class="shares" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
                    {CAUSES.map((one, at) => (
                      <rect
                        key={one}
                        class={`cause-${at + 1}`}
                        x={CAUSES.slice(0, at).reduce((sum, before) => sum + (shares[before] ?? 0), 0) * 100}
                        width={(shares[one] ?? 0) * 100}
                        height="10"
                      />
                    ))}
                  </svg>
                </td>
                {CAUSES.map((one, at) => (
                  <td class="number" key={one}>
                    {shares[one] ? (
                      <>
                        <svg class="cause" viewBox="0 0 10 10" aria-hidden="true">
                          <rect class={`cause-${at + 1}`} width="10" height="10" />
                        </svg>
                        {percent(shares[one])}
                      </>
                    ) : (
                      "–"
                    )}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Inboxes({ pulse }: { pulse: Pulse }) {
  const sources = Object.entries(pulse.job.sources);
  if (sources.length === 0) return null;
  const open = new Set(pulse.job.inboxes.map((one) => one.source));
  return (
    <section>
      <h2>Sources</h2>
      <table class="small">
        <thead>
          <tr>
            <th scope="col">Source</th>
            <th scope="col" class="number">In</th>
            <th scope="col" class="number">Rows</th>
            <th scope="col" class="number">Refused</th>
            <th scope="col">By hand</th>
          </tr>
        </thead>
        <tbody>
          {sources.map(([name, one]) => (
            <tr key={name}>
              <td>
                <a href={jobPath(pulse.job.name, "journals", name)}>{name}</a>
              </td>
              <td class="number">{perSecond(pulse.rates.sources[name] ?? 0)}</td>
              <td class="number">{rows(one.rows)} rows</td>
              <td class="number">{rows(one.refused)} rows</td>
              <td>{open.has(name) ? <Send job={pulse.job.name} source={name} /> : one.ended ? "ended" : "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
