/** What an engine and the guard of its server say to each other. */

export type ToGuard =
  | {
      readonly kind: 'launch'
      readonly command: readonly string[]
      readonly env: Readonly<Record<string, string>>
      /** Between SIGTERM and SIGKILL. */
      readonly graceMs: number
    }
  | { readonly kind: 'stop' }

export type FromGuard =
  /** The server runs; its process group has the same number. */
  | { readonly kind: 'launched'; readonly pid: number }
  | { readonly kind: 'failed'; readonly errno: string; readonly message: string }
  /** The server itself has ended; what it left behind is being ended. */
  | { readonly kind: 'ended'; readonly code: number | null; readonly signal: string | null }
