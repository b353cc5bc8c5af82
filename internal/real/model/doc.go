// Package model checks models of the protocol exhaustively with spin. line.pml is the line of a
// lock with its sessions and watches, and trust.pml the clocks of trust. See README.md.
package model
