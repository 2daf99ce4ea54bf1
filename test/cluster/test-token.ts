import type { SessionUse } from '../../src/cluster/wire/subjects.ts'

export const token = 'a token of the tests'

/** The use of a cluster by the backend of a session that has its default name. */
export const useOf = (sessionId: string): SessionUse => ({ sessionId, backend: 'cluster' })
