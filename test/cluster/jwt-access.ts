/** A server that has operators and accounts, and users of it, all signed here. */

import { nkeys } from '@nats-io/transport-node'

type KeyPair = ReturnType<typeof nkeys.createUser>

const encode = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url')

function sign(issuer: KeyPair, subject: KeyPair, name: string, nats: object): string {
  const header = encode({ typ: 'JWT', alg: 'ed25519-nkey' })
  const claims = encode({
    jti: subject.getPublicKey(),
    iat: Math.floor(Date.now() / 1000),
    iss: issuer.getPublicKey(),
    sub: subject.getPublicKey(),
    name,
    nats: { ...nats, version: 2 },
  })
  const signature = issuer.sign(Buffer.from(`${header}.${claims}`))
  return `${header}.${claims}.${Buffer.from(signature).toString('base64url')}`
}

const unlimited = { subs: -1, data: -1, payload: -1 }
const connections = { imports: -1, exports: -1, wildcards: true, conn: -1, leaf: -1 }
const store = { mem_storage: -1, disk_storage: -1, streams: -1, consumer: -1 }

interface Account {
  readonly key: string
  readonly jwt: string
  /** The content of a `.creds` file. */
  createUser(): string
}

/** The account of the system may have no store. */
function createAccount(operator: KeyPair, ofStore: object): Account {
  const account = nkeys.createAccount()
  const limits = { ...unlimited, ...connections, ...ofStore }
  return {
    key: account.getPublicKey(),
    jwt: sign(operator, account, 'account', { type: 'account', limits }),
    createUser() {
      const user = nkeys.createUser()
      const jwt = sign(account, user, 'user', { type: 'user', ...unlimited, pub: {}, sub: {} })
      const seed = Buffer.from(user.getSeed()).toString()
      return (
        `-----BEGIN NATS USER JWT-----\n${jwt}\n------END NATS USER JWT------\n\n` +
        `-----BEGIN USER NKEY SEED-----\n${seed}\n------END USER NKEY SEED------\n`
      )
    },
  }
}

/** `strangers` are the credentials of a user whose account the server does not have. */
export function createJwtAccess(): {
  readonly authorization: string
  readonly credentials: string
  readonly strangers: string
} {
  const operator = nkeys.createOperator()
  const [own, foreign] = [createAccount(operator, store), createAccount(operator, store)]
  const system = createAccount(operator, {})
  return {
    authorization:
      `operator: ${sign(operator, operator, 'operator', { type: 'operator' })}\n` +
      `system_account: ${system.key}\nresolver: MEMORY\n` +
      `resolver_preload: { ${system.key}: ${system.jwt}, ${own.key}: ${own.jwt} }`,
    credentials: own.createUser(),
    strangers: foreign.createUser(),
  }
}
