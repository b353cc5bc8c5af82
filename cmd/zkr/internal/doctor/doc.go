// Package doctor examines whether an ensemble is fit for locks and the other recipes, and measures
// the cost of a lock. Each finding has evidence, a result and (if there is something to do) advice.
package doctor
