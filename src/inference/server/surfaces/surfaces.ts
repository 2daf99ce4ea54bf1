/** The surfaces of the server. A new surface is a file of this folder and a line of this list. */

import { chatCompletions } from './chat-completions.ts'
import type { DocumentedRoute } from '../openapi.ts'
import { completions } from './completions.ts'
import { createCountTokensRoute, messages } from './messages.ts'
import { createOllamaModelRoutes } from './ollama-models.ts'
import { ollamaChat, ollamaGenerate } from './ollama.ts'
import { createResponseRoutes, responses } from './responses.ts'
import type { CompanionContext, Surface } from './surface.ts'

export const surfaces: readonly Surface[] = [
  chatCompletions,
  completions,
  messages,
  responses,
  ollamaChat,
  ollamaGenerate,
]

/** Creates the routes of these APIs that generate nothing. */
export const createCompanionRoutes = (context: CompanionContext): readonly DocumentedRoute[] => [
  createCountTokensRoute(context),
  ...createResponseRoutes(context),
  ...createOllamaModelRoutes(context),
]

/** Returns the surface of a path, or of the path above it. The requested path may lack `/v1`. */
export function findSurface(requested: string): Surface | undefined {
  const paths = [requested, `/v1${requested}`]
  const isBelow = (prefix: string) => (path: string) => path.startsWith(`${prefix}/`)
  return (
    surfaces.find((surface) => paths.includes(surface.path)) ??
    surfaces.find(({ path, prefix = path }) => paths.some(isBelow(prefix)))
  )
}
