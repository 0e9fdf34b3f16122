// Matches over event time: a lane for each key, a bar for each match, a dot for each of its events.
import { clock, rows } from "../format";
import { asButton } from "../parts";

export interface Match {
  /** The row as text, and which of its equals it is: the same when the rows are read again. */
  id: string;
  lane: string;
  /** The moments of its events, in seconds since 1970, with their names. */
  events: { name: string; at: number }[];
  from: number;
  until: number;
  timedOut: boolean;
  row: Record<string, unknown>;
}

const MOMENT = /^\d{4}-\d\d-\d\dT\d\d:\d\d/;
const LANES = 30;

function moments(value: unknown, name: string): { name: string; at: number }[] {
  if (typeof value === "string" && MOMENT.test(value)) {
    const at = Date.parse(/(Z|[+-]\d\d:\d\d)$/.test(value) ? value : `${value}Z`) / 1000;
    return Number.isFinite(at) ? [{ name, at }] : [];
  }
  if (Array.isArray(value)) return value.flatMap((one) => moments(one, name));
  if (value !== null && typeof value === "object")
    return Object.entries(value).flatMap(([inner, one]) => moments(one, Array.isArray(one) ? inner : name));
  return [];
}

/** Rows of a journal as matches; of those that are equal, each has a name of its own. */
export function matchesOf(rows: Record<string, unknown>[], by: string[]): Match[] {
  const seen = new Map<string, number>();
  return rows.flatMap((row) => {
    const one = matchOf(row, by);
    if (one === null) return [];
    const count = (seen.get(one.id) ?? 0) + 1;
    seen.set(one.id, count);
    return [{ ...one, id: `${one.id}#${count}` }];
  });
}

/** A row of a journal as a match: its times are its events; null if it has none. */
function matchOf(row: Record<string, unknown>, by: string[]): Match | null {
  const events = Object.entries(row).flatMap(([name, value]) => moments(value, name));
  if (events.length === 0) return null;
  const first = Object.keys(row).find((name) => typeof row[name] === "string" && !MOMENT.test(row[name] as string) && name !== "pattern");
  const names = by.filter((name) => name in row);
  const lane = (names.length ? names : first ? [first] : []).map((name) => String(row[name])).join(", ");
  const times = events.map((one) => one.at);
  return { id: JSON.stringify(row), lane: lane || "all", events, from: Math.min(...times), until: Math.max(...times), timedOut: row.timed_out === true, row };
}

interface Given {
  matches: Match[];
  chosen: Match | null;
  choose: (one: Match | null) => void;
}

export function Timeline({ matches, chosen, choose }: Given) {
  const newest = [...new Set([...matches].reverse().map((one) => one.lane))];
  // By name: lanes that change places would take the focus of the keyboard with them.
  const lanes = newest.slice(0, LANES).sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const first = Math.min(...matches.map((one) => one.from));
  const last = Math.max(...matches.map((one) => one.until));
  const room = Math.max((last - first) * 0.02, 0.5);
  const place = (at: number) => ((at - first + room) / (last - first + 2 * room)) * 100;
  return (
    <div class="matches">
      <svg class="axis" height="18" aria-hidden="true">
        <text y="12">{clock(first)}</text>
        <text class="to-left" x="100%" y="12">
          {clock(last)}
        </text>
      </svg>
      <ul class="lanes">
        {lanes.map((lane) => (
          <li key={lane}>
            <span class="lane-name">{lane}</span>
            <svg width="100%" height="24">
              <rect class="lane" width="100%" height="12" y="6" rx="3" />
              {matches
                .filter((one) => one.lane === lane)
                .map((one) => (
                  <Bar key={one.id} one={one} place={place} chosen={one.id === chosen?.id} choose={choose} />
                ))}
            </svg>
          </li>
        ))}
      </ul>
      {newest.length > LANES && <p class="soft">These are the {LANES} keys with the latest matches, of {rows(newest.length)}.</p>}
    </div>
  );
}

interface Drawn {
  one: Match;
  place: (at: number) => number;
  chosen: boolean;
  choose: (one: Match | null) => void;
}

function Bar({ one, place, chosen, choose }: Drawn) {
  const [x, end] = [place(one.from), place(one.until)];
  return (
    <g
      class={`match ${one.timedOut ? "timed-out" : ""} ${chosen ? "selected" : ""}`}
      aria-pressed={chosen}
      aria-label={`${one.timedOut ? "run that timed out" : "match"} of ${one.lane}, ${clock(one.from)} to ${clock(one.until)}`}
      {...asButton(() => choose(chosen ? null : one))}
    >
      <rect class="bar" x={`${x.toFixed(2)}%`} width={`${Math.max(end - x, 0.4).toFixed(2)}%`} y="8" height="8" rx="4" />
      {one.events.map((event, at) => (
        <circle key={at} cx={`${place(event.at).toFixed(2)}%`} cy="12" r="4" />
      ))}
    </g>
  );
}
