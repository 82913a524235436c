/** Who belongs to something: names that are there, and a field for more. Users are offered to who may list them. */

import { type KeyboardEvent, useId } from "react";
import { useAsk } from "@/api/queries";
import { Button } from "@/parts/button";
import { Field } from "@/parts/field";
import { useSession } from "@/session/session";
import { readNames } from "./project-data";
import "./projects.css";

/** What browsers call it when a name is picked from the list; keyboards of phones compose what they type. */
const PICKED = ["", "insertReplacementText"];

interface MembersProps {
  /** Whose it is: no member beside that. */
  owner?: string;
  /** What a member is, or may do. */
  hint: string;
  members: readonly string[];
  onMembers: (members: readonly string[]) => void;
  /** What stands in the field, and is no member yet. */
  typed: string;
  onTyped: (typed: string) => void;
  wrong?: string | undefined;
}

/** Return the names of all users; null: who asks may not list them. */
export function useUserNames(): ReadonlySet<string> | null {
  const mayList = useSession().role !== "user";
  const users = useAsk(["people"], "/users", {}, { isOn: mayList, fresh_s: 60 });
  return users.data && mayList ? new Set(users.data.items.map((user) => user.name)) : null;
}

/** Return what is wrong with names, as far as it can be seen here: the server knows all users. */
export function findUnknown(names: readonly string[], known: ReadonlySet<string> | null): string | null {
  const unknown = known ? names.filter((name) => !known.has(name)) : [];
  return unknown.length ? `There is no user ${unknown.join(", ")}.` : null;
}

/** The field. */
export function MembersField({ owner, hint, members, onMembers, typed, onTyped, wrong }: MembersProps) {
  const list = useId();
  const known = useUserNames();
  const unknown = findUnknown(readNames(typed), known);
  const add = (text: string) => {
    const names = readNames(text).filter((name) => name !== owner);
    if (findUnknown(names, known)) return;
    onMembers([...new Set([...members, ...names])]);
    onTyped("");
  };
  const press = (event: KeyboardEvent) => {
    if (event.key === "Enter" && typed.trim()) {
      event.preventDefault();
      add(typed);
    } else if (event.key === "Backspace" && !typed) onMembers(members.slice(0, -1));
  };
  const offered = [...(known ?? [])].filter((name) => name !== owner && !members.includes(name));
  return (
    <Field
      label="Members"
      hint={`${known ? "Choose users" : "Type user names; press Enter after each"}. ${hint}`}
      wrong={wrong ?? unknown}
    >
      {(wired) => (
        <div className="members">
          {members.map((name) => (
            <span key={name} className="chip">
              {name}
              <Button
                icon="cross"
                look="plain"
                isSmall
                aria-label={`Remove ${name}`}
                onClick={() => onMembers(members.filter((each) => each !== name))}
              />
            </span>
          ))}
          <input
            className="input"
            {...wired}
            autoCapitalize="none"
            autoComplete="off"
            spellCheck={false}
            placeholder={members.length ? "" : "anna"}
            value={typed}
            {...(known ? { list } : {})}
            onKeyDown={press}
            onBlur={() => typed && add(typed)}
            onChange={(event) => {
              const text = event.currentTarget.value;
              // A name that was picked from the list, or ended by a comma or a blank.
              if (/[\s,;]$/.test(text) || (known?.has(text) && PICKED.includes(inputKind(event.nativeEvent))))
                add(text);
              else onTyped(text);
            }}
          />
          {known && (
            <datalist id={list}>
              {offered.map((name) => (
                <option key={name} value={name} />
              ))}
            </datalist>
          )}
        </div>
      )}
    </Field>
  );
}

function inputKind(event: Event): string {
  return (event as InputEvent).inputType ?? "";
}
