/** Ports for servers whose port a test has to know before they start, or when they start again. */

import { findFreePort } from '../src/runtime/server/guarded-server.ts'

export const freePort = (): Promise<number> => findFreePort('127.0.0.1')
