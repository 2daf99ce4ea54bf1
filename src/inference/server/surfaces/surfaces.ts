/** The surfaces of the server. A new surface is a file of this folder and a line of this list. */

import { chatCompletions } from './chat-completions.ts'
import type { DocumentedRoute } from '../openapi.ts'
import { completions } from './completions.ts'
import { createCountTokensRoute, messages } from './messages.ts'
import { responses } from './responses.ts'
import type { CompanionContext, Surface } from './surface.ts'

export const surfaces: readonly Surface[] = [chatCompletions, completions, messages, responses]

/** Creates the routes of these APIs that generate nothing. */
export const createCompanionRoutes = (context: CompanionContext): readonly DocumentedRoute[] => [
  createCountTokensRoute(context),
]

/** Returns the surface of a requested path, which may lack `/v1` or continue a surface's path. */
export function findSurface(requested: string): Surface | undefined {
  const path = requested.startsWith('/v1/') ? requested : `/v1${requested}`
  return surfaces.find((surface) => path === surface.path || path.startsWith(`${surface.path}/`))
}
