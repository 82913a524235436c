/** A button that opens a list of things to do. Arrows move in it, Escape closes it. */

import { type KeyboardEvent, type ReactNode, useEffect, useLayoutEffect, useRef, useState } from "react";
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
  const list = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (isOpen && box.current && list.current) placeList(box.current, list.current, opensLeft);
  }, [isOpen, opensLeft]);
  useEffect(() => {
    if (!isOpen) return;
    const close = (event: PointerEvent) => {
      if (!box.current?.contains(event.target as Node)) setOpen(false);
    };
    const leave = () => setOpen(false);
    document.addEventListener("pointerdown", close);
    // It stands still while what is below it would move away.
    window.addEventListener("scroll", leave, true);
    window.addEventListener("resize", leave);
    box.current?.querySelector<HTMLElement>("[role^=menuitem]:not(:disabled)")?.focus({ preventScroll: true });
    return () => {
      document.removeEventListener("pointerdown", close);
      window.removeEventListener("scroll", leave, true);
      window.removeEventListener("resize", leave);
    };
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
        <div className="menu-list menu-list-placed" role="menu" ref={list}>
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

const GAP_PIXELS = 4;

/** Put the list below its button, or above where there is no room: at a place of the window, so that no table cuts it off. */
function placeList(box: HTMLElement, list: HTMLElement, opensLeft: boolean): void {
  const button = box.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = list;
  const isBelow = button.bottom + GAP_PIXELS + height <= window.innerHeight || button.top < height;
  const left = opensLeft ? button.left : button.right - width;
  list.style.top = `${isBelow ? button.bottom + GAP_PIXELS : button.top - GAP_PIXELS - height}px`;
  list.style.left = `${Math.max(8, Math.min(left, window.innerWidth - width - 8))}px`;
}
