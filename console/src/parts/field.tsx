/** Fields of forms: a label, the control, and below it a hint or what is wrong. */

import {
  type InputHTMLAttributes,
  type ReactNode,
  type SelectHTMLAttributes,
  type TextareaHTMLAttributes,
  useId,
  useLayoutEffect,
  useRef,
} from "react";

interface FieldProps {
  label: ReactNode;
  hint?: ReactNode;
  wrong?: string | null | undefined;
}

interface Wired {
  id: string;
  "aria-describedby"?: string;
  "aria-invalid"?: boolean;
}

/** A field around any control; `children` gets what ties the control to its label. */
export function Field({ label, hint, wrong, children }: FieldProps & { children: (wired: Wired) => ReactNode }) {
  const id = useId();
  const said = wrong || hint ? `${id}-said` : undefined;
  return (
    <div className="field">
      <label className="field-label" htmlFor={id}>
        {label}
      </label>
      {children({ id, ...(said ? { "aria-describedby": said } : {}), ...(wrong ? { "aria-invalid": true } : {}) })}
      {said && (
        <div id={said} className={wrong ? "field-wrong" : "field-hint"}>
          {wrong || hint}
        </div>
      )}
    </div>
  );
}

type Control<E> = FieldProps & { onValue?: (value: string) => void } & E;

/** One line of text, a number or a password. */
export function TextField({ label, hint, wrong, onValue, ...rest }: Control<InputHTMLAttributes<HTMLInputElement>>) {
  return (
    <Field label={label} hint={hint} wrong={wrong}>
      {(wired) => (
        <input className="input" {...rest} {...wired} onChange={(event) => onValue?.(event.currentTarget.value)} />
      )}
    </Field>
  );
}

/** Several lines of text. */
export function AreaField({
  label,
  hint,
  wrong,
  onValue,
  ...rest
}: Control<TextareaHTMLAttributes<HTMLTextAreaElement>>) {
  return (
    <Field label={label} hint={hint} wrong={wrong}>
      {(wired) => (
        <textarea className="input" {...rest} {...wired} onChange={(event) => onValue?.(event.currentTarget.value)} />
      )}
    </Field>
  );
}

export interface Choice {
  value: string;
  label: string;
}

/** One of several. */
export function SelectField({
  label,
  hint,
  wrong,
  onValue,
  choices,
  ...rest
}: Control<SelectHTMLAttributes<HTMLSelectElement>> & { choices: readonly Choice[] }) {
  return (
    <Field label={label} hint={hint} wrong={wrong}>
      {(wired) => (
        <select className="input" {...rest} {...wired} onChange={(event) => onValue?.(event.currentTarget.value)}>
          {choices.map((choice) => (
            <option key={choice.value} value={choice.value}>
              {choice.label}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

/** Yes or no. */
export function CheckField({
  label,
  isOn,
  onValue,
  isOff = false,
}: {
  label: ReactNode;
  isOn: boolean;
  onValue: (isOn: boolean) => void;
  isOff?: boolean;
}) {
  return (
    <label className="row">
      <input
        type="checkbox"
        checked={isOn}
        disabled={isOff}
        onChange={(event) => onValue(event.currentTarget.checked)}
      />
      <span>{label}</span>
    </label>
  );
}

/** Fields that cannot be changed while what they say is being sent; the focus returns to its field afterwards. */
export function Held({ isHeld, children }: { isHeld: boolean; children: ReactNode }) {
  const box = useRef<HTMLFieldSetElement>(null);
  const left = useRef<HTMLElement | null>(null);
  const active = document.activeElement;
  // Seen while it is drawn: a field that is disabled loses the focus at once.
  if (isHeld && box.current?.contains(active) && !box.current.disabled) left.current = active as HTMLElement;
  useLayoutEffect(() => {
    if (isHeld) return;
    left.current?.focus();
    left.current = null;
  }, [isHeld]);
  return (
    <fieldset className="held" disabled={isHeld} ref={box}>
      {children}
    </fieldset>
  );
}

/** A field in the head of a page that searches in what the page shows. */
export function SearchField({
  label,
  value,
  onValue,
}: {
  label: string;
  value: string;
  onValue: (value: string) => void;
}) {
  return (
    <input
      className="input input-small list-search"
      type="search"
      aria-label={label}
      placeholder="Search"
      value={value}
      onChange={(event) => onValue(event.currentTarget.value)}
    />
  );
}
