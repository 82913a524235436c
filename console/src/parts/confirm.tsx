/** Asks before something is done that cannot be taken back. */

import type { ReactNode } from "react";
import { Dialog } from "./dialog";

interface ConfirmProps {
  title: string;
  /** What the button says: the thing that will be done. */
  action: string;
  onDo: () => Promise<unknown>;
  onClose: () => void;
  children: ReactNode;
}

/** The question. */
export function ConfirmDialog({ title, action, onDo, onClose, children }: ConfirmProps) {
  return (
    <Dialog title={title} action={action} isBad onDo={onDo} onClose={onClose}>
      <p>{children}</p>
    </Dialog>
  );
}
