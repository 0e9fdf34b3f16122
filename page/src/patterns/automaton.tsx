// The automaton of a pattern, as `pattern.explain()` draws it, with the live runs in each state.
import type { PatternRuns } from "../api";
import { rows } from "../format";

const MARGIN = 20;

export function Automaton({ it }: { it: PatternRuns }) {
  const { sketch, states = {} } = it;
  const width = sketch.width + 2 * MARGIN;
  const height = sketch.height + 2 * MARGIN;
  const told = sketch.boxes.filter((one) => one.state !== null && states[String(one.state)]);
  const label = `${it.pattern}: ${told.map((one) => `${rows(states[String(one.state)]!)} runs in state ${one.state! + 1}`).join(", ") || "no live runs"}`;
  return (
    <div class="graph" tabIndex={0} role="region" aria-label={`automaton of ${it.pattern}`}>
      <svg class="automaton" viewBox={`${-MARGIN} ${-MARGIN} ${width} ${height}`} width={width} height={height} role="img" aria-label={label}>
        <defs>
          <marker id="automaton-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto" markerUnits="userSpaceOnUse">
            <path class="tip" d="M0 0.5L8 4L0 7.5z" />
          </marker>
        </defs>
        {sketch.lines.map((one, at) => (
          <path key={at} class={`line ${one.kind}`} d={one.path} marker-end={one.tip ? "url(#automaton-tip)" : undefined} />
        ))}
        {sketch.boxes.map((one, at) => {
          const runs = one.state === null ? 0 : (states[String(one.state)] ?? 0);
          const text = rows(runs);
          const wide = 14 + 8 * text.length;
          return (
            <g key={at}>
              <rect class={`box ${one.kind} ${runs ? "waits" : ""}`} x={one.x} y={one.y} width={one.width} height={one.height} rx="8" />
              {runs > 0 && (
                <>
                  <rect class="runs" x={one.x + one.width - wide / 2} y={one.y - 10} width={wide} height="20" rx="10" />
                  <text class="runs-text" x={one.x + one.width} y={one.y + 4}>
                    {text}
                  </text>
                </>
              )}
            </g>
          );
        })}
        {sketch.texts.map((one, at) => (
          <text key={at} class={one.kind} x={one.x} y={one.y}>
            {one.text}
          </text>
        ))}
      </svg>
    </div>
  );
}
