/* Covers: an exit status that is neither success nor failure: 42. Prints nothing. */
int main(void)
{
    return 42;
}
