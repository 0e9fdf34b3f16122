// Dead letters, by reason: look at them, replay them, edited or not, or discard them.
import { useRef, useState } from "preact/hooks";
import { type Letter, type ReplayAnswer, jobPath, post } from "../api";
import { Confirmed } from "../confirm";
import { clock, rows } from "../format";
import { parts, waiting } from "../letters";
import { Empty, Failure, useRepeated } from "../parts";
import { jobRoute } from "../route";

export default jobRoute({
  part: "dead",
  title: "Dead letters",
  order: 30,
  badge: (pulse) => pulse.job.waiting,
  show: ({ pulse }) => <Dead key={pulse.job.name} job={pulse.job.name} count={pulse.job.waiting} />,
});

interface Reason {
  id: string;
  title: string;
  letters: Letter[];
}

/** Texts in quotes and numbers differ from row to row: what is left is the reason. */
const kindOf = (reason: string) => reason.replace(/"[^"]*"|'[^']*'/g, "…").replace(/-?\d+(\.\d+)?/g, "n");

const reasonOf = (one: Letter) => `${one.stage}\n${one.kind}\n${kindOf(one.reason)}`;

function byReason(letters: Letter[]): Reason[] {
  const found = new Map<string, Reason>();
  for (const one of letters) {
    const id = reasonOf(one);
    const known = found.get(id);
    if (known) known.letters.push(one);
    else found.set(id, { id, title: `${one.stage}: ${one.reason}`, letters: [one] });
  }
  return [...found.values()].sort((a, b) => b.letters.length - a.letters.length);
}

/** The letters that wait; read again when their number has changed, or when it is wanted. */
function useLetters(job: string, pages: number, count: number) {
  const known = useRef<{ count: number; pages: number; letters: Letter[]; more: boolean } | null>(null);
  const latest = useRef(count);
  latest.current = count;
  const found = useRepeated(`${job} ${pages}`, 5, async (signal) => {
    const before = known.current;
    if (before?.count === latest.current && before.pages === pages) return before;
    const now = latest.current;
    return (known.current = { count: now, pages, ...(await waiting(job, pages, undefined, signal)) });
  });
  const again = () => {
    if (known.current) known.current.count = -1;
    found.again();
  };
  return { value: found.value ?? known.current ?? undefined, error: found.error, again };
}

function Dead({ job, count }: { job: string; count: number }) {
  const [pages, load] = useState(1);
  const found = useLetters(job, pages, count);
  const [told, tell] = useState("");
  const [error, fail] = useState<unknown>(null);
  const act = async (work: () => Promise<string>) => {
    fail(null);
    try {
      tell(await work());
    } catch (problem) {
      fail(problem);
    }
    found.again();
  };
  if (found.error && !found.value) return <Failure error={found.error} />;
  if (!found.value) return null;
  const { letters, more } = found.value;
  return (
    <>
      <p class="told" role="status">
        {told}
      </p>
      {error !== null && <Failure error={error} />}
      {letters.length === 0 ? (
        <Empty title="No dead letters wait.">
          <p>Records that cannot be accepted, and rows that come too late, show up here with the reason.</p>
        </Empty>
      ) : (
        byReason(letters).map((one) => <Group key={one.id} job={job} reason={one} more={more} act={act} />)
      )}
      {more && (
        <p class="soft">
          These are the oldest {rows(letters.length)} letters that wait.{" "}
          <button type="button" onClick={() => load(pages + 1)}>
            Load more
          </button>
        </p>
      )}
    </>
  );
}

function replayed(answers: ReplayAnswer[]): string {
  const refused = answers.flatMap((one) => Object.values(one.refused));
  const rest = refused.length ? `; ${rows(refused.length)} refused: ${refused[0]}` : "";
  return `${rows(answers.reduce((sum, one) => sum + one.replayed.length, 0))} replayed${rest}`;
}

interface Grouped {
  job: string;
  reason: Reason;
  /** Whether there are letters that are not loaded, perhaps with this reason. */
  more: boolean;
  act: (work: () => Promise<string>) => void;
}

function Group({ job, reason, more, act }: Grouped) {
  const [shown, show] = useState(10);
  const [chosen, choose] = useState<ReadonlySet<string>>(new Set());
  const known = reason.letters.map((one) => one.id);
  const some = known.filter((id) => chosen.has(id));
  const all = more && some.length === 0;
  const ids = some.length ? some : known;
  /** Ask for something about all letters that are meant, a part at a time. */
  const each = async <T,>(what: string, order: object = {}) => {
    const meant = all ? (await waiting(job, Infinity)).letters.filter((one) => reasonOf(one) === reason.id).map((one) => one.id) : ids;
    const answers: T[] = [];
    for (const part of parts(meant)) answers.push(await post<T>(jobPath(job, what), { ids: part, ...order }));
    return answers;
  };
  const toggle = (id: string) => choose((before) => new Set(before.has(id) ? [...before].filter((one) => one !== id) : [...before, id]));
  const late = reason.letters.some((one) => one.kind === "late");
  const count = all ? "all letters" : ids.length === 1 ? "1 letter" : `${rows(ids.length)} letters`;
  return (
    <section class="letters">
      <h2>
        {known.length === 1 ? "1 letter" : `${rows(known.length)} letters`}
        {more && " or more"} <span class="soft">{reason.title}</span>
      </h2>
      <div class="actions">
        <button type="button" class="main" onClick={() => act(async () => replayed(await each<ReplayAnswer>("replay", { late })))}>
          Replay {count}
        </button>
        <Confirmed
          label={`Discard ${count}`}
          title={`Discard ${count}?`}
          work={async () =>
            act(async () => {
              const done = await each<{ discarded: number }>("discard");
              return `${rows(done.reduce((sum, one) => sum + one.discarded, 0))} discarded`;
            })
          }
        >
          <p>They are not replayed any more. Their records stay in the journal's dead letters until that is trimmed.</p>
        </Confirmed>
      </div>
      <ul class="plain">
        {reason.letters.slice(0, shown).map((one) => (
          <One key={one.id} job={job} letter={one} act={act} chosen={chosen.has(one.id)} toggle={() => toggle(one.id)} />
        ))}
      </ul>
      {shown < reason.letters.length && (
        <button type="button" onClick={() => show(shown + 50)}>
          Show more
        </button>
      )}
    </section>
  );
}

interface Shown {
  job: string;
  letter: Letter;
  act: (work: () => Promise<string>) => void;
  chosen: boolean;
  toggle: () => void;
}

function One({ job, letter, act, chosen, toggle }: Shown) {
  const [text, edit] = useState<string | null>(null);
  const [wrong, object] = useState("");
  const send = () => {
    try {
      const row = JSON.parse(text!) as unknown;
      object("");
      const order = { rows: { [letter.id]: row }, late: letter.kind === "late" };
      act(async () => replayed([await post<ReplayAnswer>(jobPath(job, "replay", "edited"), order)]));
    } catch (problem) {
      object(`this is no JSON: ${(problem as Error).message}`);
    }
  };
  return (
    <li class="letter">
      <label class="soft">
        <input type="checkbox" checked={chosen} onChange={toggle} /> {clock(letter.at)} {letter.origin}, partition{" "}
        {letter.partition}, position {rows(letter.position)}: {letter.reason}
      </label>
      {text === null ? (
        <>
          <pre>{letter.record}</pre>
          <button type="button" onClick={() => edit(letter.record)}>
            Edit and replay
          </button>
        </>
      ) : (
        <>
          <textarea
            aria-label="row as JSON"
            rows={4}
            spellcheck={false}
            value={text}
            onInput={(event) => edit(event.currentTarget.value)}
          />
          {wrong && <Failure error={new Error(wrong)} />}
          <div class="actions">
            <button type="button" class="main" onClick={send}>
              Replay this row
            </button>
            <button type="button" onClick={() => edit(null)}>
              Cancel
            </button>
          </div>
        </>
      )}
    </li>
  );
}
