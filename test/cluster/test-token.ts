import type { SessionRun, SessionUse } from '../../src/cluster/wire/subjects.ts'

export const token = 'a token of the tests'

/** The use of a cluster by the backend of a session that has its default name. */
export const useOf = (sessionId: string): SessionUse => ({ sessionId, backend: 'cluster' })

/** The same in a run of it, for tests of parts that a session has. */
export const runOf = (sessionId: string): SessionRun => ({
  ...useOf(sessionId),
  run: '01234567-89ab-cdef-0123-456789abcdef',
})
