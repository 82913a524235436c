/** Windows over the page: the browser's own dialog, which holds the focus and closes at Escape. */

import { type FormEvent, type ReactNode, useEffect, useId, useRef, useState } from "react";
import { sayProblem } from "@/api/problems";
import { Button } from "./button";
import { Held } from "./field";
import { Note } from "./states";

interface DialogProps {
  title: string;
  children?: ReactNode;
  /** The word on the button that does it; without one there is nothing to do but close. */
  action?: string;
  /** Does it; the dialog closes when that went well, and shows the problem else. */
  onDo?: () => Promise<unknown> | unknown;
  onClose: () => void;
  isBad?: boolean;
  isWide?: boolean;
  /** It cannot be done with what the fields say now. */
  isBlocked?: boolean;
  /** What stands beside the buttons, in sight however far the fields are scrolled. */
  aside?: ReactNode;
  /** What the fields say: what went wrong before is over when it changes. */
  typed?: unknown;
}

/** A dialog that is open as long as it is shown. */
export function Dialog(props: DialogProps) {
  const { title, children, action, onDo, onClose, isBad, isWide, isBlocked, aside, typed } = props;
  const box = useRef<HTMLDialogElement>(null);
  const heading = useId();
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    const dialog = box.current;
    const opener = document.activeElement;
    if (dialog && !dialog.open) dialog.showModal?.();
    // React's own autoFocus acts while the dialog is still closed, where nothing can get the focus.
    dialog?.querySelector<HTMLElement>("[data-autofocus]")?.focus();
    return () => {
      dialog?.close?.();
      // The browser does so itself only for a dialog that is still in the page.
      if (document.activeElement === document.body && opener instanceof HTMLElement) opener.focus();
    };
  }, []);
  // biome-ignore lint/correctness/useExhaustiveDependencies: whenever the fields say something else
  useEffect(() => setProblem(null), [typed]);
  const act = async (event: FormEvent) => {
    event.preventDefault();
    setProblem(null);
    setBusy(true);
    try {
      await onDo?.();
      onClose();
    } catch (thrown) {
      setProblem(sayProblem(thrown));
      setBusy(false);
    }
  };
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes a dialog by itself
    <dialog
      ref={box}
      className={isWide ? "dialog dialog-wide" : "dialog"}
      aria-labelledby={heading}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === box.current && onClose()}
    >
      <form className="dialog-form" onSubmit={act} onChange={() => setProblem(null)}>
        <div className="dialog-head">
          <h2 id={heading}>{title}</h2>
          <Button icon="cross" look="plain" isSmall aria-label="Close" onClick={onClose} />
        </div>
        <div className="dialog-body">
          <Held isHeld={isBusy}>{children}</Held>
        </div>
        {action && (
          <div className="dialog-foot">
            {(problem || aside) && (
              <div className="dialog-said">
                {problem && <Note tone="bad">{problem}</Note>}
                {aside}
              </div>
            )}
            <Button onClick={onClose}>Cancel</Button>
            <Button type="submit" look="main" isBad={isBad ?? false} isBusy={isBusy} disabled={isBlocked}>
              {action}
            </Button>
          </div>
        )}
      </form>
    </dialog>
  );
}
