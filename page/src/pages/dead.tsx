// Dead letters, by reason: look at them, replay them, edited or not, or discard them.
import { useState } from "preact/hooks";
import { type Letter, type LetterPage, type ReplayAnswer, jobPath, post } from "../api";
import { Confirmed } from "../confirm";
import { clock, rows } from "../format";
import { Empty, Failure, useLoaded } from "../parts";
import { jobRoute } from "../route";

export default jobRoute({
  part: "dead",
  title: "Dead letters",
  order: 30,
  badge: (pulse) => pulse.job.waiting,
  show: ({ pulse }) => <Dead job={pulse.job.name} />,
});

interface Reason {
  title: string;
  letters: Letter[];
}

/** Texts in quotes and numbers differ from row to row: what is left is the reason. */
const kindOf = (reason: string) => reason.replace(/"[^"]*"|'[^']*'/g, "…").replace(/-?\d+(\.\d+)?/g, "n");

function byReason(letters: Letter[]): Reason[] {
  const found = new Map<string, Reason>();
  for (const one of letters) {
    const id = `${one.stage}\n${one.kind}\n${kindOf(one.reason)}`;
    const known = found.get(id);
    if (known) known.letters.push(one);
    else found.set(id, { title: `${one.stage}: ${one.reason}`, letters: [one] });
  }
  return [...found.values()].sort((a, b) => b.letters.length - a.letters.length);
}

function Dead({ job }: { job: string }) {
  const found = useLoaded<LetterPage>(`${jobPath(job, "dead")}?limit=1000`);
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
  const open = found.value.letters.filter((one) => one.state === "waiting");
  return (
    <>
      <p class="told" role="status">
        {told}
      </p>
      {error !== null && <Failure error={error} />}
      {open.length === 0 ? (
        <Empty title="No dead letters wait.">
          <p>Records that cannot be accepted, and rows that come too late, show up here with the reason.</p>
        </Empty>
      ) : (
        byReason(open).map((one) => <Group key={one.title} job={job} reason={one} act={act} />)
      )}
      {found.value.next !== null && <p class="soft">These are the first 1,000 letters.</p>}
    </>
  );
}

function replayed(answer: ReplayAnswer): string {
  const refused = Object.values(answer.refused);
  const rest = refused.length ? `; ${rows(refused.length)} refused: ${refused[0]}` : "";
  return `${rows(answer.replayed.length)} replayed${rest}`;
}

function Group({ job, reason, act }: { job: string; reason: Reason; act: (work: () => Promise<string>) => void }) {
  const [shown, show] = useState(10);
  const [chosen, choose] = useState<ReadonlySet<string>>(new Set());
  const known = reason.letters.map((one) => one.id);
  const some = known.filter((id) => chosen.has(id));
  const ids = some.length ? some : known;
  const toggle = (id: string) => choose((before) => new Set(before.has(id) ? [...before].filter((one) => one !== id) : [...before, id]));
  const late = reason.letters.some((one) => one.kind === "late");
  const count = ids.length === 1 ? "1 letter" : `${rows(ids.length)} letters`;
  return (
    <section class="letters">
      <h2>
        {known.length === 1 ? "1 letter" : `${rows(known.length)} letters`} <span class="soft">{reason.title}</span>
      </h2>
      <div class="actions">
        <button
          type="button"
          class="main"
          onClick={() => act(async () => replayed(await post<ReplayAnswer>(jobPath(job, "replay"), { ids, late })))}
        >
          Replay {count}
        </button>
        <Confirmed
          label={`Discard ${count}`}
          title={`Discard ${count}?`}
          work={async () =>
            act(async () => {
              const done = await post<{ discarded: number }>(jobPath(job, "discard"), { ids });
              return `${rows(done.discarded)} discarded`;
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
      act(async () => replayed(await post<ReplayAnswer>(jobPath(job, "replay", "edited"), order)));
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
