import { describe, expect, it, vi } from 'vitest'

/** A fresh copy of the module, which looks at the environment when it is first asked. */
async function freshSecrets(env: Readonly<Record<string, string>>) {
  vi.resetModules()
  for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value)
  const secrets = await import('../../src/foundation/secrets.ts')
  secrets.maskSecrets('')
  vi.unstubAllEnvs()
  return secrets
}

describe('maskSecrets', () => {
  it.each([
    'HF_TOKEN',
    'my_secret',
    'DB_PASSWORD',
    'PGPASSWD',
    'OPENAI_API_KEY',
    'APIKEY',
    'SSH_PRIVATE_KEY',
    'AWS_SECRET_ACCESS_KEY',
    'GOOGLE_CREDENTIALS',
  ])('maskSecrets masks the value of %s wherever it stands', async (name) => {
    const { maskSecrets } = await freshSecrets({ [name]: 'hunter2hunter2' })
    expect(maskSecrets('a hunter2hunter2b, hunter2hunter2')).toBe('a [masked]b, [masked]')
  })

  it('maskSecrets leaves other variables, short values and other text alone', async () => {
    const { maskSecrets } = await freshSecrets({ CITY_OF_TASKS: 'longenough', A_TOKEN: 'short' })
    expect(maskSecrets('longenough short text')).toBe('longenough short text')
  })

  it('maskSecrets masks well-known forms of credentials, and nothing around them', async () => {
    const { maskSecrets, maskSecretsIn } = await freshSecrets({})
    const jwt = 'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl'
    expect(maskSecrets(`at https://me:pw@host/a with ${jwt}, AKIAIOSFODNN7EXAMPLE.`)).toBe(
      'at https://[masked]@host/a with [masked], [masked].',
    )
    expect(maskSecrets('Authorization: Basic dXNlcjpw')).toBe('Authorization: [masked]')
    expect(maskSecrets('Basic research, a bearer token')).toBe('Basic research, a bearer token')
    // Values of the application keep their form.
    const attributes = { note: jwt }
    expect(maskSecretsIn(attributes)).toBe(attributes)
  })

  it.each([
    ['API_KEY=hunter true', 'API_KEY=[masked] true'],
    ['true --password hunter', 'true --password [masked]'],
    ['export DB_PASSWORD="a b"; run --key 5', 'export DB_PASSWORD=[masked]; run --key 5'],
    ["sh -c 'SECRET=abc x'", "sh -c 'SECRET=[masked] x'"],
    ['ask --max-tokens 100 --token-file f', 'ask --max-tokens 100 --token-file f'],
  ])('maskSecrets masks in the command %j the values of its options', async (command, masked) => {
    const { maskCommand } = await freshSecrets({})
    expect(maskCommand(command)).toBe(masked)
  })

  it('maskSecrets takes secrets literally, the longest first', async () => {
    const { maskSecrets, registerSecret } = await freshSecrets({ A_TOKEN: 'abcd.efgh' })
    registerSecret('abcd.efgh+(ij)$')
    registerSecret('tiny')
    expect(maskSecrets('abcd.efgh+(ij)$ abcd.efgh abcdxefgh tiny')).toBe(
      '[masked] [masked] abcdxefgh tiny',
    )
  })

  it('maskSecrets masks a secret from the moment it is registered', async () => {
    const { maskSecrets, registerSecret } = await freshSecrets({})
    expect(maskSecrets('configured-token')).toBe('configured-token')
    registerSecret('configured-token')
    expect(maskSecrets('configured-token')).toBe('[masked]')
  })

  it('maskSecrets masks a secret that enters the environment later, or changes there', async () => {
    const { maskSecrets, maskSecretsIn } = await freshSecrets({})
    expect(maskSecrets('came-later-on')).toBe('came-later-on')
    await Promise.resolve()
    vi.stubEnv('LATE_TOKEN', 'came-later-on')
    expect(maskSecrets('came-later-on')).toBe('[masked]')
    await Promise.resolve()
    vi.stubEnv('LATE_TOKEN', 'renewed-later-on')
    expect(maskSecretsIn({ note: 'renewed-later-on' })).toEqual({ note: '[masked]' })
    await Promise.resolve()
    vi.unstubAllEnvs()
    // A program may remove a secret from its environment after reading it.
    expect(maskSecrets('came-later-on renewed-later-on')).toBe('[masked] [masked]')
  })

  it.each([
    [['a-secret-in-a-list', 'another-secret'], 'array'],
    [12_345_678_901, 'number'],
    [{ length: 40 }, 'object'],
    [null, 'null'],
    ['', 'string'],
  ])('row 122: %o is refused as a secret, without being shown', async (value, kind) => {
    const { maskSecrets, registerSecret } = await freshSecrets({})
    const register = () => registerSecret(value as string, 'hubToken')
    expect(register).toThrow(
      `Expected \`hubToken\` to be a non-empty string, got [masked] (${kind})`,
    )
    expect(maskSecrets('text')).toBe('text')
  })
})
