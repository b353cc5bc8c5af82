// Package recipe is for authors of recipes. (Users find everything they need in package protocol.)
//
//   - A [Recipe] validates, and names itself in errors and events. [AcrossSessions] is the frame of
//     a verb, and [Recipe.Acquire] the frame of a verb that acquires something.
//   - The methods of [Session] read and write. [Do] and [DoOnce] run operations without a method.
//     [Detach] runs work that must not be left half-way.
//   - [Session.CreateOwn] creates a contender's node. [Session.WaitNode] and [Session.WaitChildren]
//     wait, and [Session.WaitAny] waits for nodes watched with [Session.Watch].
//   - [Recipe.NewGrant] makes a node a [Grant].
//
// Contenders in order of arrival are in package protocol/line. docs/writing-a-recipe.md builds a
// whole recipe.
package recipe
