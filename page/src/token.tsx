// Asks for a token when the engine wants one; it stays in memory.
import { useEffect, useRef } from "preact/hooks";
import { asking, give } from "./api";
import * as live from "./live";

export function TokenDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  const field = useRef<HTMLInputElement>(null);
  const why = asking.value;
  useEffect(() => {
    if (why === null) return dialog.current?.close();
    if (!dialog.current?.open) dialog.current?.showModal();
    field.current!.value = "";
  }, [why]);
  return (
    <dialog ref={dialog} aria-labelledby="token-title" onClose={() => asking.value !== null && give(null)}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (field.current!.value.trim()) give(field.current!.value);
        }}
      >
        <h2 id="token-title">Token</h2>
        <p>{why}</p>
        <p class="soft">
          The owner's token is in the file <code>{live.engine.value ? `${live.engine.value.data}/token` : "token"}</code>
          {!live.engine.value && " of the engine's data folder"}. It stays in this page's memory.
        </p>
        <label>
          Token <input ref={field} type="password" autocomplete="off" spellcheck={false} autofocus />
        </label>
        <div class="actions">
          <button type="button" onClick={() => give(null)}>
            Cancel
          </button>
          <button type="submit" class="main">
            Go on
          </button>
        </div>
      </form>
    </dialog>
  );
}
