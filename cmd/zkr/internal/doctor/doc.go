// Package doctor examines an ensemble: whether it is fit for locks and the other recipes, and what
// they cost there. Each finding says what was looked at, what was found, and what to do.
package doctor
