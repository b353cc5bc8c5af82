package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// operands returns a validator of arguments that have these names, such as "PATH". The first one
// must be a path.
func operands(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return checkOperands(cmd, args, names)
	}
}

// operandsAndCommand is like operands, for a command that takes "-- COMMAND [ARGUMENT…]" as well.
func operandsAndCommand(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		dash := cmd.ArgsLenAtDash()
		if dash < 0 || dash == len(args) {
			return usagef("%s: needs a command to run: %s", cmd.CommandPath(), cmd.UseLine())
		}
		return checkOperands(cmd, args[:dash], names)
	}
}

func checkOperands(cmd *cobra.Command, args, names []string) error {
	if len(args) != len(names) {
		return usagef("%s: needs %s, and was given %d arguments: %s",
			cmd.CommandPath(), strings.Join(names, " and "), len(args), cmd.UseLine())
	}
	for i, arg := range args {
		if arg == "" && names[i] != "PATH" {
			return usagef("%s: %s must not be empty: %s", cmd.CommandPath(), names[i], cmd.UseLine())
		}
	}
	if len(args) > 0 && names[0] == "PATH" {
		if err := protocol.ValidatePath(args[0]); err != nil {
			return usagef("%s: %s: %w", cmd.CommandPath(), args[0], err)
		}
	}
	return nil
}
