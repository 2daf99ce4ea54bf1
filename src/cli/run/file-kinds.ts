/** What `tutti run` takes, by the ending of the file: a script for Node, or a file of tasks. */

import { extname } from 'node:path'
import { ValueError } from '../../foundation/errors.ts'

const scripts = ['.js', '.mjs', '.cjs', '.ts', '.mts', '.cts']
const lines = ['.jsonl']
const yaml = ['.yaml', '.yml']

export const isTaskFile = (file: string): boolean => [...lines, ...yaml].includes(extname(file))

export const isYamlFile = (file: string): boolean => yaml.includes(extname(file))

/** Throws `ValueError` for any other. Node takes a file without an ending as JavaScript. */
export function kindOf(file: string): 'script' | 'tasks' {
  const ending = extname(file)
  if (isTaskFile(file)) return 'tasks'
  if (ending === '' || scripts.includes(ending)) return 'script'
  const tasks = [...lines, ...yaml].join(', ')
  throw new ValueError(`${file}: tutti run does not know files that end in ${ending}`, {
    field: 'file',
    expected: `a script for Node (${scripts.join(', ')}) or a file of tasks (${tasks})`,
    got: file,
    hint: `${whatToGive} Any other program is a task with \`executable\`.`,
  })
}

/** For people who gave something else. */
export const whatToGive =
  `Give a script for Node (${scripts.join(', ')}), or a file of tasks: a task a line ` +
  `(${lines.join(', ')}) or a list (${yaml.join(', ')}).`
