// Lines over time, by uPlot; what happened to the job stands across them.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { Happening } from "./api";
import { clock, seconds } from "./format";

export interface Line {
  label: string;
  /** The number of its colour; without one, its place among the lines. */
  hue?: number;
  values: (number | null)[];
}

interface Plotted {
  title: string;
  at: number[];
  lines: Line[];
  unit: (value: number) => string;
  marks?: Happening[];
  /** Whether there are only whole ones. */
  whole?: boolean;
}

const HEIGHT = 150;
const WHOLE = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12].flatMap((power) => [1, 2, 5].map((one) => one * 10 ** power));

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const HUES = 6;
const hueOf = (line: Line, at: number) => line.hue ?? (at % HUES) + 1;

function options(width: number, given: Plotted, marks: () => Happening[], point: (at: number | null) => void): uPlot.Options {
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--rule"), width: 1 }, ticks: { show: false } };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, sync: { key: "millstream" } },
    scales: { y: { range: (_, __, high) => [0, high > 0 ? high * 1.1 : 1] } },
    axes: [
      { ...axis, font: "11px system-ui", size: 28, space: 90, values: (_, ticks) => ticks.map((at) => clock(at).slice(11)) },
      { ...axis, font: "11px system-ui", size: 72, values: (_, ticks) => ticks.map(given.unit), ...(given.whole ? { incrs: WHOLE } : {}) },
    ],
    series: [
      {},
      ...given.lines.map((line, at) => ({
        label: line.label,
        stroke: colour(`--line-${hueOf(line, at)}`),
        width: 1.75,
        points: { show: false },
        spanGaps: false,
      })),
    ],
    hooks: {
      draw: [(plot) => drawMarks(plot, marks())],
      setCursor: [(plot) => point(plot.cursor.idx ?? null)],
    },
  };
}

function drawMarks(plot: uPlot, marks: Happening[]): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = colour("--mark");
  ctx.fillStyle = colour("--mark");
  ctx.font = `${10 * devicePixelRatio}px system-ui`;
  ctx.textAlign = "left";
  ctx.setLineDash([4, 4]);
  let free = 0;
  for (const mark of marks) {
    const at = seconds(mark.at);
    const { min, max } = plot.scales.x!;
    if (min == null || max == null || at < min || at > max) continue;
    const x = Math.round(plot.valToPos(at, "x", true));
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    // A label only where the one before has left room for it.
    const wide = ctx.measureText(mark.what).width + 8 * devicePixelRatio;
    if (x < free || x + wide > bbox.left + bbox.width) continue;
    ctx.fillText(mark.what, x + 4 * devicePixelRatio, bbox.top + 10 * devicePixelRatio);
    free = x + wide;
  }
  ctx.restore();
}

export function Plot(given: Plotted) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  /** The point under the cursor, of this plot or of another. */
  const [pointed, point] = useState<number | null>(null);
  const latest = useRef(given);
  latest.current = given;
  const labels = given.lines.map((line) => line.label).join("\n");

  useEffect(() => {
    const make = () => {
      plot.current?.destroy();
      const width = place.current!.clientWidth;
      const now = latest.current;
      const data = [now.at, ...now.lines.map((line) => line.values)] as uPlot.AlignedData;
      plot.current = new uPlot(options(width, now, () => latest.current.marks ?? [], point), data, place.current!);
    };
    make();
    const resized = new ResizeObserver(() => {
      const width = place.current?.clientWidth;
      if (width) plot.current?.setSize({ width, height: HEIGHT });
    });
    resized.observe(place.current!);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", make);
    return () => {
      dark.removeEventListener("change", make);
      resized.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [labels]);

  useEffect(() => {
    plot.current?.setData([given.at, ...given.lines.map((line) => line.values)] as uPlot.AlignedData);
  }, [given.at.at(-1), given.at.length, labels, given.marks?.at(-1)?.at]);

  const shown = (value: number | null | undefined) => (value === undefined || value === null ? "–" : given.unit(value));
  const newest = (line: Line) => shown(line.values.findLast((one) => one !== null));
  const told = given.lines.map((line) => `${line.label} ${newest(line)}`).join(", ");
  const moment = pointed === null ? undefined : given.at[pointed];
  return (
    <figure class="plot">
      <figcaption>
        <span class="what">{given.title}</span>
        {moment !== undefined && <time dateTime={new Date(moment * 1000).toISOString()}>{clock(moment).slice(11)}</time>}
        {given.lines.map((line, at) => (
          <span class="key" key={line.label}>
            <i class={`swatch hue-${hueOf(line, at)}`} />
            {line.label} <b>{moment === undefined ? newest(line) : shown(line.values[pointed!])}</b>
          </span>
        ))}
      </figcaption>
      <div ref={place} role="img" aria-label={`${given.title}: ${told}`} />
    </figure>
  );
}

export function Marks({ marks }: { marks: Happening[] }) {
  return (
    <ol class="marks" reversed>
      {[...marks].reverse().map((one) => (
        <li key={one.at + one.what}>
          <time dateTime={one.at}>{clock(one.at)}</time>
          <b>{one.what}</b>
          {one.detail && <span>{one.detail}</span>}
        </li>
      ))}
    </ol>
  );
}
