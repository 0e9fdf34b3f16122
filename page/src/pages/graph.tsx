// The graph of a job alive, its numbers over time, and what has happened.
import { useState } from "preact/hooks";
import { type Drawing, type Happening, type Pulse, type Series, jobPath } from "../api";
import { CAUSES, Causes, HUES } from "../causes";
import { Chosen } from "../chosen";
import { bytes, duration, perSecond, rows } from "../format";
import { Graph } from "../graph";
import { Empty, Failure, Table, useLoaded } from "../parts";
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
      {node && <Chosen node={node} drawing={drawing.value!} job={name} />}
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
  const held = of("state_bytes").filter((line) => line.values.some((one) => one !== null && one > 0));
  const causes = summed(series, names);
  const shared = { at: series.at, marks };
  return (
    <section class="plots" aria-label="numbers over time">
      <Plot {...shared} title="Rows in" lines={of("rows_in")} unit={perSecond} />
      <Plot {...shared} title="Rows out" lines={of("rows_out")} unit={perSecond} />
      <Plot {...shared} title="Lag" whole lines={of("lag_rows")} unit={(one) => `${rows(one)} rows`} />
      <Plot {...shared} title="Batch time" lines={of("batch_seconds")} unit={duration} />
      {causes.length > 0 && (
        <Plot {...shared} title={names.length > 1 ? "Time by cause, all groups" : "Time by cause"} lines={causes} unit={percent} />
      )}
      {timed.length > 0 && <Plot {...shared} title="Watermark behind the clock" lines={timed} unit={duration} />}
      {kept.length > 0 && <Plot {...shared} title="State" whole lines={kept} unit={(one) => `${rows(one)} rows`} />}
      {held.length > 0 && <Plot {...shared} title="State in memory" lines={held} unit={bytes} />}
    </section>
  );
}

const percent = (part: number) => `${Math.round(part * 100)} %`;
const LARGEST = 6;

/** The part of the time that goes into each cause, of some groups together: the largest ones of the last minutes. */
function summed(series: Series, names: string[]): Line[] {
  const lines = Object.keys(CAUSES).map((cause) => {
    const known = names.map((one) => series.groups[one]![`spent_${cause}`] ?? []);
    const values = series.at.map((_, at) => known.reduce((sum, one) => sum + (one[at] ?? 0), 0));
    return { label: cause, hue: HUES[cause], values, weight: values.slice(-60).reduce((sum, one) => sum + one, 0) };
  });
  const largest = lines.filter((one) => one.weight > 0).sort((a, b) => b.weight - a.weight);
  return largest.slice(0, LARGEST);
}

function Inboxes({ pulse }: { pulse: Pulse }) {
  const sources = Object.entries(pulse.job.sources);
  if (sources.length === 0) return null;
  const open = new Set(pulse.job.inboxes.map((one) => one.source));
  return (
    <section>
      <h2>Sources</h2>
      <Table class="small">
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
      </Table>
    </section>
  );
}
