/** `tutti run --array`: runs a program once for each number of a list. */

import { ValueError } from '../../foundation/errors.ts'
import { ComputeTask } from '../../index.ts'

const placeholder = '{}'
const idVariable = 'TUTTI_ARRAY_ID'
/** The maximum size of an array, so that a typing error does not fill the memory. */
const maxNumbers = 1_000_000
/** With more than twelve digits, the size of a range would not be exact. */
const rangePattern = /^(\d{1,12})(?:-(\d{1,12})(?::(\d{1,12}))?)?$/

/**
 * Parses a list such as `1-10,20` or `1-100:5` (every fifth) to ascending numbers without
 * repetitions, like Slurm. Throws a `ValueError` that names the wrong part.
 */
function parseArray(text: string): number[] {
  const numbers = new Set<number>()
  let count = 0
  for (const part of text.split(',')) {
    const { first, last, step } = parsePart(part, text)
    count += Math.floor((last - first) / step) + 1
    if (count > maxNumbers) throw invalidArray(text, part, `more than ${maxNumbers} numbers`)
    for (let number = first; number <= last; number += step) numbers.add(number)
  }
  return [...numbers].toSorted((a, b) => a - b)
}

function parsePart(part: string, text: string) {
  const [, start, end = start, every = '1'] = rangePattern.exec(part) ?? []
  if (start === undefined)
    throw invalidArray(text, part, `"${part}" is neither a whole number nor a range`)
  const [first, last, step] = [Number(start), Number(end), Number(every)]
  if (last < first) throw invalidArray(text, part, `${part} ends before it begins`)
  if (step < 1) throw invalidArray(text, part, `the step of ${part} is not 1 or more`)
  return { first, last, step }
}

function invalidArray(text: string, part: string, problem: string): ValueError {
  const isLimit = part.includes('%')
  return new ValueError(`--array ${JSON.stringify(text)}: ${problem}`, {
    field: '--array',
    expected: 'numbers and ranges such as 1-10,20 or 1-100:5',
    got: text,
    hint: isLimit
      ? 'A limit such as %4 is not supported: as many tasks run as this machine has cores.'
      : 'Write numbers and ranges such as 1-10,20 or 1-100:5.',
  })
}

/** Creates one task per number, with the uid `<name>-<number>`. */
export function createArrayTasks(
  array: string,
  [program = '', ...args]: readonly string[],
): ComputeTask[] {
  const { name } = new ComputeTask({ executable: program, arguments: args })
  return parseArray(array).map((number) => {
    const withNumber = (word: string): string => word.replaceAll(placeholder, String(number))
    return new ComputeTask({
      executable: withNumber(program),
      arguments: args.map(withNumber),
      env: { [idVariable]: String(number) },
      uid: `${toIdPart(name)}-${number}`,
      name,
    })
  })
}

const maxIdCharacters = 100

/** Converts `python3 mesh.py` to `python3-mesh.py`. */
const toIdPart = (name: string): string =>
  name
    .replaceAll(/[^A-Za-z0-9._]+/g, '-')
    .replace(/^[._-]+/, '')
    .slice(0, maxIdCharacters)
    .replace(/[._-]+$/, '') || 'array'
