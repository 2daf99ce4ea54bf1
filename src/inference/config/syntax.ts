/** What is wrong with a text that is no YAML, in words that quote nothing of it. */

const problems: Readonly<Record<string, string>> = {
  BAD_ALIAS: 'the alias has no name or an impossible one',
  BAD_DQ_ESCAPE: 'no such escape in double quotes; single quotes take everything literally',
  BAD_INDENT: 'indented in a way that fits nothing above',
  BAD_SCALAR_START: 'a value beginning with this sign must stand in quotes',
  BLOCK_AS_IMPLICIT_KEY: 'a second key on one line; a value with ": " in it must stand in quotes',
  BLOCK_IN_FLOW: 'a list or keys in lines inside of brackets',
  KEY_OVER_1024_CHARS: 'a key of more than 1024 characters',
  MISSING_CHAR: 'a quote, bracket, comma or colon is missing',
  MULTILINE_IMPLICIT_KEY: 'a key over several lines; is a ": " missing?',
  MULTIPLE_ANCHORS: 'more than one anchor on a value',
  MULTIPLE_DOCS: 'a second document; there may be one',
  TAB_AS_INDENT: 'a tab; indent with spaces',
  UNEXPECTED_TOKEN: 'not expected here',
}

/** The parser's own messages may quote a token; its codes do not. */
export function syntaxProblem(code: string): string {
  return `not valid YAML: ${problems[code] ?? 'cannot be read'}`
}
