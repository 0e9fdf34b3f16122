// Event time during a switch: the cut, how far each group of both versions is, and the newest events.
import { type JournalDetail, type Pulse, type Switch, jobPath } from "../api";
import { clock, duration, seconds } from "../format";
import { ended } from "../health";
import * as live from "../live";
import { useAllLoaded } from "../parts";

export interface Lane {
  label: string;
  version: string;
  at: number | null;
}

const both = (it: Switch) => `${it.previous} and ${it.version}`;

/** Where groups and sources are, in seconds since 1970; a group of the next version is called GROUP@VERSION. */
export function lanes(pulse: Pulse, it: Switch, journals: JournalDetail[], now: number): Lane[] {
  const names = new Set(pulse.job.groups.map((one) => one.name));
  const known = (at: number | null) => (at !== null && !ended(at, now) ? at : null);
  const groups = pulse.job.groups.map((one) => {
    const [label, version] = one.name.split("@") as [string, string | undefined];
    const alone = version !== undefined || names.has(`${label}@${it.version}`);
    return {
      label,
      version: alone ? (version ?? it.previous) : both(it),
      at: known(one.watermark_ms ? one.watermark_ms / 1000 : null),
    };
  });
  const sources = journals.flatMap((journal) =>
    journal.partitions.map((one) => ({
      label: journal.partitions.length > 1 ? `${journal.name} ${one.partition}` : journal.name,
      version: "source",
      at: known(one.running_max === null ? null : one.running_max / 1e6),
    })),
  );
  return [...sources, ...groups.sort((a, b) => a.label.localeCompare(b.label) || a.version.localeCompare(b.version))];
}

export function Axis({ pulse, it }: { pulse: Pulse; it: Switch }) {
  const sources = Object.keys(pulse.job.sources).sort();
  const found = useAllLoaded<JournalDetail>(sources.map((one) => jobPath(pulse.job.name, "journals", one)), 2);
  const all = lanes(pulse, it, found, live.now.value);
  const cut = it.cut ? seconds(it.cut) : null;
  const times = [...all.map((one) => one.at), cut].filter((one) => one !== null);
  if (times.length < 2) return null;
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const room = Math.max((last - first) * 0.08, 1);
  const place = (at: number) => `${(((at - first + room) / (last - first + 2 * room)) * 100).toFixed(2)}%`;
  return (
    <section aria-label="event time">
      <h2>
        Event time <span class="soft">how far each group is, and the newest event of each source</span>
      </h2>
      <svg class="axis" height="36" aria-hidden="true">
        <text y="12">{clock(first)}</text>
        <text class="to-left" x="100%" y="12">
          {clock(last)}
        </text>
        {cut !== null && (
          <text class={`cut-label ${cut > (first + last) / 2 ? "to-left" : ""}`} x={place(cut)} y="30">
            cut {clock(cut)}
          </text>
        )}
      </svg>
      {cut === null && !it.shadow && <p class="soft">There is no cut yet.</p>}
      <ul class="lanes">
        {all.map((one) => (
          <li key={`${one.label} ${one.version}`}>
            <span class="lane-name">
              {one.label} <span class="soft">{one.version === "source" ? "source" : `version ${one.version}`}</span>
            </span>
            <svg width="100%" height="22" role="img" aria-label={said(one, cut)}>
              <rect class="lane" width="100%" height="10" y="6" rx="3" />
              {one.at !== null && (
                <rect class={`reached ${kind(one, it)}`} width={place(one.at)} height="10" y="6" rx="3" />
              )}
              {cut !== null && <line class="cut" x1={place(cut)} x2={place(cut)} y1="0" y2="22" />}
            </svg>
            <span class="number">{one.at === null ? "–" : left(one.at, cut)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

const kind = (lane: Lane, it: Switch) =>
  lane.version === "source" ? "source" : lane.version === it.version ? "next" : lane.version === it.previous ? "old" : "kept";

function left(at: number, cut: number | null): string {
  if (cut === null) return clock(at).slice(11);
  return at < cut ? `${duration(cut - at)} before` : at > cut ? `${duration(at - cut)} after` : "at the cut";
}

const said = (lane: Lane, cut: number | null) =>
  `${lane.label}: ${lane.at === null ? "no time yet" : cut === null ? clock(lane.at) : `${left(lane.at, cut)} the cut`}`;
