/** Schemas of configuration keys for engines that use a server. */

import {
  addFormatIssue,
  addIssue,
  createTextSchema,
  type Environment,
  integer,
  listOf,
} from '../../schema/config-fields.ts'

export const concurrencySchema = () =>
  integer(1, 65_536).default(64).describe('Requests at a time.')

/** Rejects paths that tutti serves itself. */
export function pathsSchema(env: Environment) {
  const about = { pattern: /^(?:\/[\w-][\w.-]*)+$/, expected: 'a path such as /v1/embeddings' }
  const path = createTextSchema(env)({ ...about, maxLength: 256 }).transform((text, context) => {
    if (servedPaths.test(text)) addIssue(context, `expected another path, ${text} is served here`)
    return text
  })
  return listOf(path, { max: 64, expected: about.expected })
    .optional()
    .transform((paths) => paths ?? defaultPaths)
    .describe(`Paths that are passed on to the server. Default: ${defaultPaths.join(', ')}.`)
}

const defaultPaths: readonly string[] = ['/v1/embeddings', '/v1/responses', '/v1/rerank']

/** Paths that tutti serves itself. `/tokenize` is missing, because it may be forwarded instead. */
const servedPaths = new RegExp(
  [
    '^/v1/(?:(?:chat/)?completions|server)$',
    '^/(?:v1/models|health)(?:/.*)?$',
    '^/api/(?:tags|ps|version)$',
    '^/(?:generate|metrics|openapi\\.json)$',
  ].join('|'),
)

/** The schema of a URL without credentials. A trailing `/` is removed. */
export function addressSchema(env: Environment) {
  const expected = 'an address that begins with http:// or https://'
  const address = createTextSchema(env)({ isPrivate: true, expected })
  return address.transform((text, context) => {
    const url = URL.parse(text)
    if (url === null || !/^https?:$/.test(url.protocol)) {
      addFormatIssue(context, text)
    } else if (url.username !== '' || url.password !== '') {
      addIssue(context, 'expected an address without a password; put it into api_key')
    }
    return text.replace(/\/+$/, '')
  })
}
