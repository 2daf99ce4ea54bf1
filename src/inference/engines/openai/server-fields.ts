/** Schemas of configuration keys for engines with a server behind them. */

import {
  addFormatIssue,
  addRule,
  createTextSchema,
  type Environment,
  integer,
  listOf,
} from '../../schema/config-fields.ts'

export const concurrency = () => integer(1, 65_536).default(64).describe('Requests at a time.')

/** Paths that are passed on to the server behind the engine. Refuses paths that tutti serves. */
export function pathsSchema(env: Environment) {
  const about = { pattern: /^(?:\/[\w-][\w.-]*)+$/, expected: 'a path such as /v1/embeddings' }
  const path = createTextSchema(env)({ ...about, maxLength: 256 }).transform((text, context) => {
    if (servedPaths.test(text)) addRule(context, `expected another path, ${text} is served here`)
    return text
  })
  return listOf(path, { max: 64, expected: about.expected })
    .optional()
    .transform((paths) => paths ?? defaultPaths)
    .describe(`Paths that are passed on to the server. Default: ${defaultPaths.join(', ')}.`)
}

/** Paths that are passed on by default. */
const defaultPaths: readonly string[] = ['/v1/embeddings', '/v1/responses', '/v1/rerank']

/** Paths that tutti itself serves, except `/tokenize`, which may be passed on instead. */
const servedPaths =
  /^\/(?:v1\/(?:chat\/)?completions|(?:v1\/models|health)(?:\/.*)?|generate|metrics|openapi\.json)$/

/** A URL without credentials. A trailing `/` is removed. */
export function addressSchema(env: Environment) {
  const expected = 'an address that begins with http:// or https://'
  const address = createTextSchema(env)({ isPrivate: true, expected })
  return address.transform((text, context) => {
    const url = URL.parse(text)
    if (url === null || !/^https?:$/.test(url.protocol)) {
      addFormatIssue(context, text)
    } else if (url.username !== '' || url.password !== '') {
      addRule(context, 'expected an address without a password; put it into api_key')
    }
    return text.replace(/\/+$/, '')
  })
}
