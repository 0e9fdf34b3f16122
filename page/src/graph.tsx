// The graph of a flow, as `millstream plan --svg` lays it out, with the numbers of now.
import type { Drawing, GraphNode, Pulse } from "./api";
import { duration, perSecond, rows } from "./format";
import { asButton } from "./parts";

interface Shown {
  drawing: Drawing;
  pulse: Pulse;
  selected: string | null;
  select: (id: string) => void;
}

const MARGIN = 20;

/** How many rows a second go along an edge. */
function rate(pulse: Pulse, source: string, target: string): number | null {
  const [, from] = source.split(/ (.*)/s);
  const [, to] = target.split(/ (.*)/s);
  if (target.startsWith("group ")) return pulse.rates.groups_in[to!] ?? null;
  if (source.startsWith("group ")) return pulse.rates.groups_out[from!] ?? null;
  return null;
}

/** The part of the time in which a group works. */
export function busy(pulse: Pulse, name: string): number {
  return Math.min(1, Object.values(pulse.rates.spent[name] ?? {}).reduce((sum, one) => sum + one, 0));
}

/** From idle to busy all the time. */
const LOADS = ["still", "busy-1", "busy-2", "busy-3"];

function load(pulse: Pulse, name: string): string {
  const group = pulse.job.groups.find((one) => one.name === name);
  if (!group) return "still";
  if (name in pulse.slow || (group.lag_rows > 0 && group.lag_seconds > 60)) return "late";
  return LOADS[Math.min(LOADS.length - 1, Math.floor(busy(pulse, name) * 4))]!;
}

function caption(pulse: Pulse, node: GraphNode): string {
  const group = pulse.job.groups.find((one) => one.name === node.name);
  if (node.kind !== "group" || !group) return node.detail;
  const batch = `busy ${Math.round(busy(pulse, group.name) * 100)} %, batch ${duration(group.batch_seconds)}`;
  return group.lag_rows > 0 ? `${batch}, lag ${rows(group.lag_rows)} rows` : batch;
}

function Shape({ node, state }: { node: GraphNode; state: string }) {
  const { x, y, width, height } = node;
  if (node.kind !== "journal")
    return (
      <rect
        class={`box ${node.kind} ${state} ${node.state ? "stateful" : ""}`}
        x={x}
        y={y}
        width={width}
        height={height}
        rx={node.kind === "group" ? 10 : 7}
      />
    );
  const bend = 7;
  const right = x + width - bend;
  const half = height / 2;
  return (
    <>
      <path
        class="box journal"
        d={`M${x + bend} ${y}H${right}a${bend} ${half} 0 0 1 0 ${height}H${x + bend}a${bend} ${half} 0 0 1 0 ${-height}z`}
      />
      <path class="rim" d={`M${right} ${y}a${bend} ${half} 0 0 0 0 ${height}`} />
    </>
  );
}

export function Graph({ drawing, pulse, selected, select }: Shown) {
  const width = drawing.width + 2 * MARGIN;
  const height = drawing.height + 2 * MARGIN;
  const groups = drawing.nodes.filter((one) => one.kind === "group");
  const others = drawing.nodes.filter((one) => one.kind !== "group");
  const node = (one: GraphNode) => {
    const state = one.kind === "group" ? load(pulse, one.name) : "";
    const left = one.kind === "group" ? one.x + 12 : one.x + one.width / 2;
    const told = caption(pulse, one);
    return (
      <g
        key={one.id}
        class={`node ${selected === one.id ? "selected" : ""} ${one.kind === "group" ? "" : "centred"}`}
        aria-pressed={selected === one.id}
        aria-label={`${one.kind} ${one.name} ${told}`}
        {...asButton(() => select(one.id))}
      >
        <Shape node={one} state={state} />
        {one.kind === "group" && (
          <rect
            class={`meter ${state}`}
            x={one.x + 10}
            y={one.y + one.height - 1.5}
            width={Math.max(0, one.width - 20) * busy(pulse, one.name)}
            height="3"
            rx="1.5"
          />
        )}
        <text class="name" x={left} y={one.y + (one.kind === "group" ? 20 : 18)}>
          {one.name}
        </text>{" "}
        <text class="detail" x={left} y={one.kind === "group" ? one.y + one.height + 15 : one.y + 33}>
          {told}
        </text>
      </g>
    );
  };
  return (
    <div class="graph" tabIndex={0} role="region" aria-label="graph">
      <svg viewBox={`${-MARGIN} ${-MARGIN} ${width} ${height + 10}`} width={width} height={height + 10}>
        <defs>
          <marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto" markerUnits="userSpaceOnUse">
            <path class="tip" d="M0 0.5L8 4L0 7.5z" />
          </marker>
        </defs>
        {groups.map(node)}
        {drawing.arrows.map((one) => (
          <path
            key={`${one.source}>${one.target}`}
            class={`edge ${one.back ? "back" : ""} ${(rate(pulse, one.source, one.target) ?? 0) > 0 ? "flows" : ""}`}
            d={one.path}
            marker-end={one.target.startsWith("group ") || one.target === "" ? undefined : "url(#tip)"}
          />
        ))}
        {others.map(node)}
        {drawing.arrows.map((one) => {
          const value = rate(pulse, one.source, one.target);
          return value === null ? null : (
            <text key={`r${one.source}>${one.target}`} class="rate" x={one.x} y={one.y - 6}>
              {perSecond(value)}
            </text>
          );
        })}
      </svg>
    </div>
  );
}

interface Sketched {
  drawing: Drawing;
  title: string;
  /** The class of a node, "" for none. */
  mark: (node: GraphNode) => string;
}

/** The graph of a flow that stands still, with nodes marked. */
export function Sketch({ drawing, title, mark }: Sketched) {
  const width = drawing.width + 2 * MARGIN;
  const height = drawing.height + 2 * MARGIN;
  const nodes = [...drawing.nodes].sort((a, b) => Number(b.kind === "group") - Number(a.kind === "group"));
  return (
    <figure class="sketch">
      <figcaption>{title}</figcaption>
      <div class="graph" tabIndex={0} role="region" aria-label={`graph: ${title}`}>
        <svg viewBox={`${-MARGIN} ${-MARGIN} ${width} ${height}`} width={width} height={height} role="img" aria-label={title}>
          {nodes.map((one) => {
            const group = one.kind === "group";
            const left = group ? one.x + 12 : one.x + one.width / 2;
            return (
              <g key={one.id} class={group ? "" : "centred"}>
                <Shape node={one} state={mark(one)} />
                <text class="name" x={left} y={one.y + (group ? 20 : 18)}>
                  {one.name}
                </text>
                {!group && (
                  <text class="detail" x={left} y={one.y + 33}>
                    {one.detail}
                  </text>
                )}
              </g>
            );
          })}
          {drawing.arrows.map((one) => (
            <path key={`${one.source}>${one.target}`} class={`edge ${one.back ? "back" : ""}`} d={one.path} />
          ))}
        </svg>
      </div>
    </figure>
  );
}
