/** The surfaces of the server. A new surface is a file of this folder and a line of this list. */

import { chatCompletions } from './chat-completions.ts'
import { completions } from './completions.ts'
import type { Surface } from './surface.ts'

export const surfaces: readonly Surface[] = [chatCompletions, completions]

/** Returns the surface of a requested path, whose spelling may vary as that of all routes. */
export function findSurface(requested: string): Surface | undefined {
  const path = requested.endsWith('/') ? requested.slice(0, -1) : requested
  return surfaces.find((surface) => surface.path === path || surface.path === `/v1${path}`)
}
