/** The file extensions that `tutti run` accepts. */

import { extname } from 'node:path'
import { ValueError } from '../../foundation/errors.ts'

const scriptExtensions = ['.js', '.mjs', '.cjs', '.ts', '.mts', '.cts']
const jsonLinesExtensions = ['.jsonl']
const yamlExtensions = ['.yaml', '.yml']

export const isTaskFile = (file: string): boolean =>
  [...jsonLinesExtensions, ...yamlExtensions].includes(extname(file))

export const isYamlFile = (file: string): boolean => yamlExtensions.includes(extname(file))

/** Returns whether the file is a script or a task file. Throws a `ValueError` for other files. */
export function detectFileKind(file: string): 'script' | 'tasks' {
  const ending = extname(file)
  if (isTaskFile(file)) return 'tasks'
  if (scriptExtensions.includes(ending)) return 'script'
  const tasks = [...jsonLinesExtensions, ...yamlExtensions].join(', ')
  const which = ending === '' ? 'without an extension' : `that end in ${ending}`
  throw new ValueError(`${file}: tutti run does not know files ${which}`, {
    field: 'file',
    expected: `a script for Node (${scriptExtensions.join(', ')}) or a file of tasks (${tasks})`,
    got: file,
    hint: `${acceptedFilesHint} Any other program is a task with \`executable\`.`,
  })
}

export const acceptedFilesHint =
  `Give a script for Node (${scriptExtensions.join(', ')}), or a file of tasks: one task ` +
  `per line (${jsonLinesExtensions.join(', ')}) or a list (${yamlExtensions.join(', ')}).`
