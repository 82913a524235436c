/** A button that opens a list of things to do. Arrows move in it, Escape closes it. */

import { type KeyboardEvent, type ReactNode, useEffect, useRef, useState } from "react";
import { Button } from "./button";
import { Icon, type IconName } from "./icon";

export interface MenuItem {
  label: ReactNode;
  icon?: IconName;
  onPick: () => void;
  isBad?: boolean;
  isOff?: boolean;
  /** Marks one of several that exclude one another. */
  isChosen?: boolean;
}

interface MenuProps {
  label: ReactNode;
  /** Said of the button where its label is no text. */
  name?: string;
  icon?: IconName;
  items: readonly (MenuItem | "line" | { head: ReactNode })[];
  look?: "normal" | "plain" | "main";
  isSmall?: boolean;
  opensLeft?: boolean;
}

/** A menu. */
export function Menu({ label, name, icon, items, look = "normal", isSmall = false, opensLeft = false }: MenuProps) {
  const [isOpen, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!isOpen) return;
    const close = (event: PointerEvent) => {
      if (!box.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener("pointerdown", close);
    box.current?.querySelector<HTMLElement>("[role^=menuitem]:not(:disabled)")?.focus();
    return () => document.removeEventListener("pointerdown", close);
  }, [isOpen]);
  const press = (event: KeyboardEvent) => {
    if (!isOpen) return;
    const found = [...(box.current?.querySelectorAll<HTMLElement>("[role^=menuitem]:not(:disabled)") ?? [])];
    const place = found.indexOf(document.activeElement as HTMLElement);
    if (event.key === "Escape") {
      setOpen(false);
      box.current?.querySelector("button")?.focus();
    } else if (event.key === "ArrowDown") found[(place + 1) % found.length]?.focus();
    else if (event.key === "ArrowUp") found[(place - 1 + found.length) % found.length]?.focus();
    else if (event.key === "Tab") {
      setOpen(false);
      return;
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the keys belong to the buttons inside
    <div className="menu" ref={box} onKeyDown={press}>
      <Button
        look={look}
        isSmall={isSmall}
        {...(icon ? { icon } : {})}
        aria-haspopup="menu"
        aria-expanded={isOpen}
        {...(name ? { "aria-label": name } : {})}
        onClick={(event) => {
          event.stopPropagation();
          setOpen(!isOpen);
        }}
      >
        {label ?? undefined}
      </Button>
      {isOpen && (
        <div className={opensLeft ? "menu-list menu-list-left" : "menu-list"} role="menu">
          {items.map((item, place) =>
            item === "line" ? (
              <div key={place} className="menu-line" role="separator" aria-valuenow={0} />
            ) : "head" in item ? (
              <div key={place} className="menu-head" role="presentation">
                {item.head}
              </div>
            ) : (
              <button
                key={place}
                type="button"
                role={item.isChosen === undefined ? "menuitem" : "menuitemradio"}
                {...(item.isChosen === undefined ? {} : { "aria-checked": item.isChosen })}
                className={item.isBad ? "menu-item menu-item-bad" : "menu-item"}
                disabled={item.isOff}
                onClick={(event) => {
                  event.stopPropagation();
                  setOpen(false);
                  item.onPick();
                }}
              >
                {item.icon && <Icon name={item.icon} size={14} />}
                <span className="grow">{item.label}</span>
                {item.isChosen && <Icon name="check" size={14} />}
              </button>
            ),
          )}
        </div>
      )}
    </div>
  );
}
