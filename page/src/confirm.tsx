// A button that first says what will happen.
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { Failure, useAttempt } from "./parts";

interface Given {
  label: string;
  title: string;
  /** What will happen. */
  children: ComponentChildren;
  work: () => Promise<unknown>;
  main?: boolean;
}

export function Confirmed({ label, title, children, work, main }: Given) {
  const dialog = useRef<HTMLDialogElement>(null);
  const { error, working, attempt } = useAttempt();
  const act = () => {
    dialog.current?.close();
    return attempt(work);
  };
  return (
    <>
      <button type="button" class={main ? "main" : ""} disabled={working} onClick={() => dialog.current?.showModal()}>
        {label}
      </button>
      {error !== null && <Failure error={error} />}
      <dialog ref={dialog} aria-label={title}>
        <h2>{title}</h2>
        {children}
        <div class="actions">
          <button type="button" autofocus onClick={() => dialog.current?.close()}>
            No
          </button>
          <button type="button" class="main" onClick={act}>
            Yes
          </button>
        </div>
      </dialog>
    </>
  );
}
