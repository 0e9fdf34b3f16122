// Send rows to a source by hand, and see what became of them.
import { useRef, useState } from "preact/hooks";
import { type Letter, type Taken, jobPath, open } from "./api";
import { rows } from "./format";
import { waiting } from "./letters";
import { Failure } from "./parts";

export function Send({ job, source }: { job: string; source: string }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, set] = useState("");
  const [taken, tell] = useState<Taken | null>(null);
  const [refused, object] = useState<Letter[]>([]);
  const [error, fail] = useState<unknown>(null);
  const send = async () => {
    fail(null);
    tell(null);
    object([]);
    try {
      const how = { method: "POST", body: text, headers: { "Content-Type": "application/x-ndjson" } };
      const found = (await (await open(jobPath(job, "sources", source, "events"), how)).json()) as Taken;
      tell(found);
      if (found.refused === 0) return;
      const { letters } = await waiting(job, Infinity, found.sender);
      object(letters.slice(-found.refused));
    } catch (problem) {
      fail(problem);
    }
  };
  const drop = async (event: DragEvent) => {
    event.preventDefault();
    const file = event.dataTransfer?.files[0];
    if (file) set(await file.text());
  };
  return (
    <>
      <button type="button" onClick={() => dialog.current!.showModal()}>
        Send rows
      </button>
      <dialog ref={dialog} class="large" aria-label={`send rows to ${source}`}>
        <h2>Send rows to {source}</h2>
        <label>
          A JSON object a line; paste them, or drop a file
          <textarea
            rows={10}
            spellcheck={false}
            value={text}
            onInput={(event) => set(event.currentTarget.value)}
            onDragOver={(event) => event.preventDefault()}
            onDrop={drop}
          />
        </label>
        {taken && (
          <p class="told" role="status">
            {rows(taken.taken)} rows taken, {rows(taken.refused)} refused
            {taken.refused > 0 && (
              <>
                : <a href={jobPath(job, "dead")}>dead letters</a>
              </>
            )}
          </p>
        )}
        {refused.length > 0 && (
          <ul class="plain refused">
            {refused.slice(0, 20).map((one) => (
              <li key={one.id}>
                <span class="bad-text">{one.reason}</span>
                <code class="json">{one.record}</code>
              </li>
            ))}
          </ul>
        )}
        {error !== null && <Failure error={error} />}
        <div class="actions">
          <button type="button" onClick={() => dialog.current!.close()}>
            Close
          </button>
          <button type="button" class="main" disabled={!text.trim()} onClick={send}>
            Send
          </button>
        </div>
      </dialog>
    </>
  );
}
