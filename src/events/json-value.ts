/** Moved to the ground floor; to be removed. */

export * from '../foundation/json-value.ts'
