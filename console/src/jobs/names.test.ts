import { expect, it } from "vitest";
import { tellApart } from "./names";

it("only runs that share a name have the end of their id behind it", () => {
  const told = tellApart([
    { id: "j-aa0001", name: "digits" },
    { id: "j-ab0002", name: "digits" },
    { id: "j-ac0001", name: "digits" },
    { id: "j-ad0001", name: "tides" },
  ]);
  expect([...told.values()]).toEqual(["digits ·aa0001", "digits ·0002", "digits ·ac0001", "tides"]);
});
