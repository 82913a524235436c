/** Buttons: one look for all of them. */

import { type ButtonHTMLAttributes, type ReactNode, useEffect, useRef, useState } from "react";
import { Icon, type IconName } from "./icon";

interface Look {
  icon?: IconName;
  look?: "main" | "plain" | "normal";
  isBad?: boolean;
  isSmall?: boolean;
  /** What it does is under way: it cannot be pressed again. */
  isBusy?: boolean;
}

type ButtonProps = ButtonHTMLAttributes<HTMLButtonElement> & Look & { children?: ReactNode };

/** Return the class names of a button, for links that look like one. */
export function buttonClass({ look = "normal", isBad, isSmall, isIcon }: Look & { isIcon?: boolean }): string {
  const names = ["button"];
  if (look !== "normal") names.push(`button-${look}`);
  if (isBad) names.push("button-bad");
  if (isSmall) names.push("button-small");
  if (isIcon) names.push("button-icon");
  return names.join(" ");
}

/** A button. Without words in it, `aria-label` says what it does. */
export function Button({ icon, look = "normal", isBad, isSmall, isBusy, children, ...rest }: ButtonProps) {
  const style = buttonClass({ look, isBad: isBad ?? false, isSmall: isSmall ?? false, isIcon: children === undefined });
  return (
    <button
      type="button"
      {...rest}
      title={rest.title ?? (children === undefined ? rest["aria-label"] : undefined)}
      className={[style, rest.className].filter(Boolean).join(" ")}
      disabled={rest.disabled || isBusy}
    >
      {isBusy ? <Icon name="spin" size={14} className="spins" /> : icon && <Icon name={icon} size={14} />}
      {children}
    </button>
  );
}

/** A button that puts a text on the clipboard and says so for a moment. */
export function CopyButton({ text, what, label }: { text: string; what: string; label?: string }) {
  const [isCopied, setCopied] = useState(false);
  const timer = useRef<number | undefined>(undefined);
  useEffect(() => () => window.clearTimeout(timer.current), []);
  const copy = async () => {
    await copyText(text);
    setCopied(true);
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(() => setCopied(false), 1600);
  };
  return (
    <>
      <Button
        icon={isCopied ? "check" : "copy"}
        look="plain"
        isSmall
        aria-label={`Copy ${what}`}
        title={`Copy ${what}`}
        onClick={(press) => {
          press.stopPropagation();
          void copy();
        }}
      >
        {label === undefined ? undefined : isCopied ? "Copied" : label}
      </Button>
      <span className="only-heard" aria-live="polite">
        {isCopied ? `Copied ${what}` : ""}
      </span>
    </>
  );
}

/** Put a text on the clipboard, also where a page that came over plain HTTP may not ask for it in the new way. */
export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const box = document.createElement("textarea");
  box.value = text;
  box.style.position = "fixed";
  box.style.opacity = "0";
  document.body.append(box);
  box.select();
  document.execCommand("copy");
  box.remove();
}
