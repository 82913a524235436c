/** What holds for all tests: a machine that is busy makes none of them fail. */

import { configure } from "@testing-library/react";

configure({ asyncUtilTimeout: 20_000 });
