/** Turns a system error into a checkpoint's: with path, errno and what a person can do. */

import { CheckpointError, errnoOf, messageOf } from '../foundation/errors.ts'

const hints: Readonly<Record<string, string>> = {
  EACCES: 'Give this user the right to the folder, or choose another one.',
  EPERM: 'Give this user the right to the folder, or choose another one.',
  EROFS: 'The file system is read-only: choose another folder.',
  ENOSPC: 'The disk is full: free some space, or choose another folder.',
  EDQUOT: 'The quota is used up: free some space, or choose another folder.',
  ENOENT: 'Check the path: a part of it does not exist.',
  ENOTDIR: 'Check the path: a part of it is not a folder.',
  EEXIST: 'Something that is not a folder has this name: choose another one.',
  EISDIR: 'This is a folder: name a file in it.',
  ELOOP: 'Symbolic links are not followed here: name the real path.',
  ENAMETOOLONG: 'Choose a shorter folder or session id.',
}

/** `action` completes "Cannot …"; an error that is ours already is returned as it is. */
export function checkpointFailure(action: string, path: string, cause: unknown): CheckpointError {
  if (CheckpointError.isInstance(cause)) return cause
  const errno = errnoOf(cause)
  const hint = hints[errno]
  return new CheckpointError(`Cannot ${action} ${path}: ${messageOf(cause)}`, {
    path,
    errno,
    cause,
    ...(hint === undefined ? {} : { hint }),
  })
}
