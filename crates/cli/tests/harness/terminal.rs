//! A terminal for a program to run in.
